"""Celery's door to closing months."""

import uuid

import structlog
from celery import current_app, shared_task
from kombu.exceptions import OperationalError

from controlplane.billing.months import closes

log = structlog.get_logger(__name__)
CLOSE = "billing.period_close_run"


@shared_task(name=CLOSE)
def period_close_run(organization: str, job: str) -> bool:
    """Whether the month is closed."""
    made = closes.period_close_run(closes.DueClose(uuid.UUID(organization), uuid.UUID(job)))
    if made is not None and made.error:
        log.warning("period_close_failed", period=made.period, error=made.error)
    return made is not None and not made.error


@shared_task(name="billing.period_closes_resume")
def period_closes_resume() -> int:
    """Closes handed to workers: those that no one took, and those whose worker is gone."""
    due = closes.period_closes_due()
    for one in due:
        period_close_enqueue(*one)
    return len(due)


def period_close_enqueue(organization: uuid.UUID, job: uuid.UUID) -> None:
    """Hand it to a worker; without a broker it waits for `period_closes_resume`."""
    try:
        current_app.send_task(CLOSE, [str(organization), str(job)])
    except OperationalError:
        log.warning("period_close_waits_for_broker", job=str(job))


EVERY_S = {"billing.period_closes_resume": 15.0}
