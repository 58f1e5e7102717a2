"""The application of service level objectives."""

from django.apps import AppConfig


class SlosConfig(AppConfig):
    """Named `slos` in migrations and tables."""

    name = "controlplane.slos"
    label = "slos"
