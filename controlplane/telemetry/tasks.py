"""Celery's door to telemetry's upkeep: each task is named after the service it calls."""

from celery import shared_task

from controlplane.telemetry import rollups, services

roll_up = shared_task(name="telemetry.roll_up")(rollups.roll_up)
make_partitions = shared_task(name="telemetry.make_partitions")(services.make_partitions)
drop_old_partitions = shared_task(name="telemetry.drop_old_partitions")(
    services.drop_old_partitions
)
EVERY_S = {
    "telemetry.roll_up": 30.0,
    "telemetry.make_partitions": 3_600.0,
    "telemetry.drop_old_partitions": 3_600.0,
}
