"""Django's entry for the billing app."""

from django.apps import AppConfig


class BillingConfig(AppConfig):
    name = "controlplane.billing"
    label = "billing"
