"""Django's entry for the telemetry app."""

from django.apps import AppConfig


class TelemetryConfig(AppConfig):
    """Request rows, histograms, usage."""

    name = "controlplane.telemetry"
    label = "telemetry"
