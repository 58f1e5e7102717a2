"""The application of organizations, projects, members, roles, API keys."""

from django.apps import AppConfig


class TenantsConfig(AppConfig):
    name = "controlplane.tenants"
    label = "tenants"
