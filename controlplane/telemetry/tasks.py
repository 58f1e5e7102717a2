"""Celery's door to telemetry's upkeep: each task is named after the service it calls."""

from __future__ import annotations

from celery import shared_task

from controlplane.telemetry import rollups, services


@shared_task(name="telemetry.roll_up")
def roll_up() -> int:
    """Windows written."""
    return rollups.roll_up()


@shared_task(name="telemetry.make_partitions")
def make_partitions() -> int:
    """Partitions made."""
    return services.make_partitions()


@shared_task(name="telemetry.drop_old_partitions")
def drop_old_partitions() -> int:
    """Partitions dropped and rows deleted."""
    return services.drop_old_partitions()


# A run that waited longer than its own period is stale: the next one does its work.
BEAT_SCHEDULE = {
    "telemetry.roll_up": {
        "task": "telemetry.roll_up",
        "schedule": 30.0,
        "options": {"expires": 30.0},
    },
    "telemetry.make_partitions": {
        "task": "telemetry.make_partitions",
        "schedule": 3_600.0,
        "options": {"expires": 3_600.0},
    },
    "telemetry.drop_old_partitions": {
        "task": "telemetry.drop_old_partitions",
        "schedule": 3_600.0,
        "options": {"expires": 3_600.0},
    },
}
