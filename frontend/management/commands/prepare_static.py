"""`manage.py prepare_static`: compress the one large script, once per version of it."""

from typing import Any

from django.core.management.base import BaseCommand

from frontend.finders import compress_plotly


class Command(BaseCommand):
    """Idempotent; a third of a second the first time, nothing later."""

    help = "Keep a compressed copy of plotly's script in the data folder."
    requires_system_checks: list[str] = []

    def handle(self, *args: Any, **options: Any) -> None:
        self.stdout.write(str(compress_plotly()))
