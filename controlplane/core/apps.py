"""The core application: base model, permission matrix, audit, row scope."""

from django.apps import AppConfig


class CoreConfig(AppConfig):
    """Named `core` in migrations and tables."""

    name = "controlplane.core"
    label = "core"
