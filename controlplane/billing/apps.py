"""Django's entry for the billing app."""

from django.apps import AppConfig


class BillingConfig(AppConfig):
    """Budgets, holds, transfers, seals."""

    name = "controlplane.billing"
    label = "billing"
