"""Celery's door to exports."""

import uuid

import structlog
from celery import current_app, shared_task
from kombu.exceptions import OperationalError

from controlplane.billing.exports import services
from controlplane.billing.exports.writer import export_write as write
from controlplane.kernel.ids import public_id

log = structlog.get_logger(__name__)
WRITE = "billing.export_write"


@shared_task(name=WRITE)
def export_write(organization: str, export: str) -> bool:
    """Whether more is to be done; then another task goes on, behind those that wait."""
    due = services.DueExport(uuid.UUID(organization), uuid.UUID(export))
    more = write(due)
    if more:
        export_enqueue(*due)
    return more


@shared_task(name="billing.exports_resume")
def exports_resume() -> int:
    """Exports handed to workers: those that no one took, and those whose worker is gone."""
    due = services.exports_due()
    for one in due:
        export_enqueue(*one)
    return len(due)


def export_enqueue(organization: uuid.UUID, export: uuid.UUID) -> None:
    """Hand it to a worker; without a broker it waits for `exports_resume`."""
    try:
        current_app.send_task(WRITE, [str(organization), str(export)])
    except OperationalError:
        log.warning("export_waits_for_broker", export=public_id("export", export))


EVERY_S = {"billing.exports_resume": 15.0}
