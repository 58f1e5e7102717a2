"""Explore: any filter over any combination of dimensions, in groups, as a link."""
