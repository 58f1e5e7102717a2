"""Django's entry for the insights app."""

from django.apps import AppConfig


class InsightsConfig(AppConfig):
    """Hygiene counts and comparisons; the rest is computed when asked for."""

    name = "controlplane.insights"
    label = "insights"
