"""Celery's door to insights' upkeep."""

from celery import shared_task

from controlplane.insights import services


@shared_task(name="insights.hygiene_forget")
def hygiene_forget() -> int:
    """Counts removed."""
    return services.hygiene_forget()


EVERY_S = {"insights.hygiene_forget": 3_600.0}
