"""Celery's door to the upkeep of what all apps share: each task is named after its service."""

from __future__ import annotations

from celery import shared_task

from controlplane.core import idempotency


@shared_task(name="core.answers_forget")
def answers_forget() -> int:
    """Kept answers dropped."""
    return idempotency.answers_forget()


# A run that waited longer than its own period is stale: the next one does its work.
BEAT_SCHEDULE = {
    "core.answers_forget": {
        "task": "core.answers_forget",
        "schedule": 60.0,
        "options": {"expires": 60.0},
    },
}
