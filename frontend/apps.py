"""Django's name for the pages' application."""

from django.apps import AppConfig


class FrontendConfig(AppConfig):
    """Pages, their templates and their static files."""

    name = "frontend"
