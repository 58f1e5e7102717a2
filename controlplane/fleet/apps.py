"""The application of nodes and the credentials they dial in with."""

from django.apps import AppConfig


class FleetConfig(AppConfig):
    """Named `fleet` in migrations and tables."""

    name = "controlplane.fleet"
    label = "fleet"
