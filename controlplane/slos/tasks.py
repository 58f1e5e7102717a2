"""Celery's door to objectives."""

import structlog
from celery import shared_task

from controlplane.slos import evaluate

log = structlog.get_logger(__name__)


@shared_task(name="slos.objectives_evaluate")
def objectives_evaluate() -> int:
    """Alerts that began or ended."""
    changed = evaluate.objectives_evaluate()
    if changed:
        log.warning("alerts_changed", alerts=changed)
    return changed


EVERY_S = {"slos.objectives_evaluate": 30.0}
