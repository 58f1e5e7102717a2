"""Celery's door to the ledger's jobs: each task is named after the service it calls."""

from __future__ import annotations

import uuid

import structlog
from celery import current_app, shared_task
from kombu.exceptions import OperationalError

from controlplane.billing import budgets, close_jobs, costs, services
from controlplane.billing import reconcile as compare
from controlplane.billing.claims import claims_forget

log = structlog.get_logger(__name__)
CLOSE = "billing.period_close_run"


@shared_task(name="billing.sweep_holds")
def sweep_holds() -> int:
    """Holds expired; each is a request whose gateway and node both never reported."""
    swept = services.sweep_holds()
    if swept.holds:
        log.warning("holds_expired", holds=swept.holds, nano=swept.nano)
    return swept.holds


@shared_task(name="billing.seal_ledger")
def seal_ledger() -> int:
    """Rows sealed."""
    return services.seal_ledger()


@shared_task(name="billing.make_partitions")
def make_partitions() -> int:
    """Partitions made."""
    return services.make_partitions()


@shared_task(name="billing.reconcile")
def reconcile() -> int:
    """Budgets that disagree with their holds; each is an error in the log."""
    differences = services.reconcile()
    for difference in differences:
        log.error("held_counter_differs", **difference._asdict())
    return len(differences)


@shared_task(name="billing.forget_claims")
def forget_claims() -> int:
    """Claims on idempotency keys removed."""
    return claims_forget()


@shared_task(name="billing.turn_budgets")
def turn_budgets() -> int:
    """Periods of budgets that began."""
    return budgets.turn_budgets()


@shared_task(name="billing.reconcile_lately")
def reconcile_lately() -> int:
    """Tokens unaccounted for; any is an error in the log."""
    made = compare.reconcile_lately()
    for one in made:
        if one.findings:
            log.error(
                "reconciliation_found",
                organization=one.organization.hex,
                findings=one.findings,
                tokens=one.unaccounted_tokens,
                nano=one.unaccounted_nano,
            )
    return sum(one.unaccounted_tokens for one in made)


@shared_task(name=CLOSE)
def period_close_run(organization: str, job: str) -> bool:
    """Whether the month is closed."""
    made = close_jobs.period_close_run(close_jobs.Due(uuid.UUID(organization), uuid.UUID(job)))
    if made is not None and made.error:
        log.warning("period_close_failed", period=made.period, error=made.error)
    return made is not None and not made.error


@shared_task(name="billing.period_closes_resume")
def period_closes_resume() -> int:
    """Closes handed to workers: those that nobody took, and those whose worker is gone."""
    due = close_jobs.period_closes_due()
    for one in due:
        period_close_enqueue(*one)
    return len(due)


def period_close_enqueue(organization: uuid.UUID, job: uuid.UUID) -> None:
    """Hand it to a worker; without a broker it waits for `period_closes_resume`."""
    try:
        current_app.send_task(CLOSE, [str(organization), str(job)])
    except OperationalError:
        log.warning("period_close_waits_for_broker", job=str(job))


@shared_task(name="billing.raise_alerts")
def raise_alerts() -> int:
    """Alerts raised."""
    return budgets.raise_alerts()


@shared_task(name="billing.book_costs")
def book_costs() -> int:
    """Days of pools whose GPU cost came onto the books."""
    return costs.costs_book()


# A run that waited longer than its own period is stale: the next one does its work.
BEAT_SCHEDULE = {
    "billing.book_costs": {
        "task": "billing.book_costs",
        "schedule": 3_600.0,
        "options": {"expires": 3_600.0},
    },
    "billing.forget_claims": {
        "task": "billing.forget_claims",
        "schedule": 600.0,
        "options": {"expires": 600.0},
    },
    "billing.sweep_holds": {
        "task": "billing.sweep_holds",
        "schedule": 10.0,
        "options": {"expires": 10.0},
    },
    "billing.seal_ledger": {
        "task": "billing.seal_ledger",
        "schedule": 60.0,
        "options": {"expires": 60.0},
    },
    "billing.make_partitions": {
        "task": "billing.make_partitions",
        "schedule": 3_600.0,
        "options": {"expires": 3_600.0},
    },
    "billing.reconcile": {
        "task": "billing.reconcile",
        "schedule": 60.0,
        "options": {"expires": 60.0},
    },
    "billing.turn_budgets": {
        "task": "billing.turn_budgets",
        "schedule": 10.0,
        "options": {"expires": 10.0},
    },
    "billing.reconcile_lately": {
        "task": "billing.reconcile_lately",
        "schedule": 3_600.0,
        "options": {"expires": 3_600.0},
    },
    "billing.period_closes_resume": {
        "task": "billing.period_closes_resume",
        "schedule": 15.0,
        "options": {"expires": 15.0},
    },
    "billing.raise_alerts": {
        "task": "billing.raise_alerts",
        "schedule": 60.0,
        "options": {"expires": 60.0},
    },
}
