"""The application of service level objectives."""

from django.apps import AppConfig


class SlosConfig(AppConfig):
    name = "controlplane.slos"
    label = "slos"
