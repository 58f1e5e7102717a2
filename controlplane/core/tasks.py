"""Celery's door to the upkeep of what all apps share: each task is named after its service."""

import structlog
from celery import shared_task
from django.contrib.sessions.backends.db import SessionStore

from controlplane.core.audit import chain

DAY_S = 86_400.0
log = structlog.get_logger(__name__)
sessions_forget = shared_task(name="core.sessions_forget")(SessionStore.clear_expired)


@shared_task(name="core.audit_chain")
def audit_chain() -> int:
    """Audit rows linked; the log keeps the head, against which the chain can be held later."""
    linked = chain.audit_chain()
    if linked:
        log.info("audit_chained", rows=linked, head=str(chain.chain_head()))
    return linked


EVERY_S = {"core.audit_chain": 60.0, "core.sessions_forget": DAY_S}
