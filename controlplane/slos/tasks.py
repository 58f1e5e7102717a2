"""Celery's door to objectives."""

import structlog
from celery import shared_task
from django.utils import timezone

from controlplane.slos import evaluate, learning

log = structlog.get_logger(__name__)


@shared_task(name="slos.objectives_evaluate")
def objectives_evaluate() -> int:
    """Alerts that began or ended."""
    changed = evaluate.objectives_evaluate()
    if changed:
        log.warning("alerts_changed", alerts=changed)
    return changed


@shared_task(name="slos.stage_budgets_learn")
def stage_budgets_learn() -> int:
    """Budgets that were learned now."""
    learned = learning.stage_budgets_learn(timezone.now())
    if learned:
        log.info("stage_budgets_learned", stages=learned)
    return learned


EVERY_S = {"slos.objectives_evaluate": 30.0, "slos.stage_budgets_learn": 60.0}
