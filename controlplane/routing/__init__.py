"""Routing: rules as versions."""
