"""The application of limits on requests and tokens."""

from django.apps import AppConfig


class QuotasConfig(AppConfig):
    """Named `quotas` in migrations and tables."""

    name = "controlplane.quotas"
    label = "quotas"
