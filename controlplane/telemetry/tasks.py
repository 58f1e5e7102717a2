"""Celery's door to telemetry's upkeep: each task is named after the service it calls."""

from celery import shared_task

from controlplane.telemetry import rollups, services


@shared_task(name="telemetry.roll_up")
def roll_up() -> int:
    """Windows written."""
    return rollups.roll_up()


@shared_task(name="telemetry.make_partitions")
def make_partitions() -> int:
    return services.make_partitions()


@shared_task(name="telemetry.drop_old_partitions")
def drop_old_partitions() -> int:
    """Partitions dropped and rows deleted."""
    return services.drop_old_partitions()


EVERY_S = {
    "telemetry.roll_up": 30.0,
    "telemetry.make_partitions": 3_600.0,
    "telemetry.drop_old_partitions": 3_600.0,
}
