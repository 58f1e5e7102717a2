"""Catalog: models and the versions of their prices."""
