"""The application of configuration as one whole, in and out."""

from django.apps import AppConfig


class BlueprintConfig(AppConfig):
    name = "controlplane.blueprint"
    label = "blueprint"
