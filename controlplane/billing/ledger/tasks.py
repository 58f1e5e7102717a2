"""Celery's door to the ledger's jobs: those that log what they find."""

import structlog
from celery import shared_task

from controlplane.billing.ledger import reconcile as compare
from controlplane.billing.ledger import services

log = structlog.get_logger(__name__)


@shared_task(name="billing.sweep_holds")
def sweep_holds() -> int:
    """Holds expired; each is a request whose gateway and node both never reported."""
    swept = services.sweep_holds()
    if swept.holds:
        log.warning("holds_expired", holds=swept.holds, nano=swept.nano)
    return swept.holds


@shared_task(name="billing.reconcile")
def reconcile() -> int:
    """Budgets that disagree with their holds; each is an error in the log."""
    differences = services.reconcile()
    for difference in differences:
        log.error("held_counter_differs", **difference._asdict())
    return len(differences)


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


EVERY_S = {
    "billing.sweep_holds": 10.0,
    "billing.reconcile": 60.0,
    "billing.reconcile_lately": 3_600.0,
}
