"""The application of rules as versions."""

from django.apps import AppConfig


class RoutingConfig(AppConfig):
    """Named `routing` in migrations and tables."""

    name = "controlplane.routing"
    label = "routing"
