"""The application of organizations, projects, members, roles, API keys."""

from django.apps import AppConfig


class TenantsConfig(AppConfig):
    """Named `tenants` in migrations and tables."""

    name = "controlplane.tenants"
    label = "tenants"
