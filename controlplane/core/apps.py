"""The core application: base model, permission matrix, audit, row scope."""

from django.apps import AppConfig


class CoreConfig(AppConfig):
    name = "controlplane.core"
    label = "core"
