"""Celery's door to insights' upkeep."""

from __future__ import annotations

from celery import shared_task

from controlplane.insights import services


@shared_task(name="insights.hygiene_forget")
def hygiene_forget() -> int:
    """Counts removed."""
    return services.hygiene_forget()


# A run that waited longer than its own period is stale: the next one does its work.
BEAT_SCHEDULE = {
    "insights.hygiene_forget": {
        "task": "insights.hygiene_forget",
        "schedule": 3_600.0,
        "options": {"expires": 3_600.0},
    },
}
