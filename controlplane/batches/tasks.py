"""Celery's door to the upkeep of batches."""

from celery import shared_task

from controlplane.batches import services


@shared_task(name="batches.batches_forget")
def batches_forget() -> bool:
    """Whether anything was removed."""
    return services.batches_forget()


EVERY_S = {"batches.batches_forget": 300.0}
