"""Celery's door to the upkeep of what all apps share: each task is named after its service."""

from __future__ import annotations

import structlog
from celery import shared_task

from controlplane.core import audit_chain as chain
from controlplane.core import idempotency

log = structlog.get_logger(__name__)


@shared_task(name="core.answers_forget")
def answers_forget() -> int:
    """Kept answers dropped."""
    return idempotency.answers_forget()


@shared_task(name="core.audit_chain")
def audit_chain() -> int:
    """Audit rows linked; the log keeps the head, against which the chain can be held later."""
    linked = chain.audit_chain()
    if linked:
        log.info("audit_chained", rows=linked, head=str(chain.chain_head()))
    return linked


# A run that waited longer than its own period is stale: the next one does its work.
BEAT_SCHEDULE = {
    "core.audit_chain": {
        "task": "core.audit_chain",
        "schedule": 60.0,
        "options": {"expires": 60.0},
    },
    "core.answers_forget": {
        "task": "core.answers_forget",
        "schedule": 60.0,
        "options": {"expires": 60.0},
    },
}
