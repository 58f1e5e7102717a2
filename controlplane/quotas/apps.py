"""The application of requests and tokens per minute."""

from django.apps import AppConfig


class QuotasConfig(AppConfig):
    """Named `quotas` in migrations and tables."""

    name = "controlplane.quotas"
    label = "quotas"
