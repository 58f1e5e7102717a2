"""The application of models and the versions of their prices."""

from django.apps import AppConfig


class CatalogConfig(AppConfig):
    """Named `catalog` in migrations and tables."""

    name = "controlplane.catalog"
    label = "catalog"
