"""Celery's door to objectives: each task is named after the service it calls."""

import structlog
from celery import shared_task

from controlplane.slos import evaluate, upkeep
from controlplane.slos.channels import messages

log = structlog.get_logger(__name__)


@shared_task(name="slos.objectives_evaluate")
def objectives_evaluate() -> int:
    """Alerts that began or ended."""
    changed = evaluate.objectives_evaluate()
    if changed:
        log.warning("alerts_changed", alerts=changed)
    return changed


messages_send = shared_task(name="slos.messages_send")(messages.messages_send)
counts_roll_up = shared_task(name="slos.counts_roll_up")(upkeep.counts_roll_up)
counts_forget = shared_task(name="slos.counts_forget")(upkeep.counts_forget)
EVERY_S = {
    "slos.objectives_evaluate": 30.0,
    "slos.messages_send": 10.0,
    "slos.counts_roll_up": 60.0,
    "slos.counts_forget": 600.0,
}
