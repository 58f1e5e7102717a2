"""Routing: rules in their versions, dry runs and canaries."""
