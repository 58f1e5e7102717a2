"""`manage.py make_partitions`: the days ahead of ledger and telemetry, before a gateway starts."""

from typing import Any

from django.core.management.base import BaseCommand

from controlplane.billing.ledger.services import make_partitions as make_ledger_partitions
from controlplane.telemetry.services import make_partitions as make_telemetry_partitions


class Command(BaseCommand):
    """Idempotent; the worker does the same every hour."""

    help = "Create missing daily partitions for the coming week."

    def handle(self, *args: Any, **options: Any) -> None:
        made = make_ledger_partitions() + make_telemetry_partitions()
        self.stdout.write(f"made {made} partitions")
