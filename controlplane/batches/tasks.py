"""Celery's door to the upkeep of batches."""

from celery import shared_task

from controlplane.batches import services

batches_forget = shared_task(name="batches.batches_forget")(services.batches_forget)
EVERY_S = {"batches.batches_forget": 300.0}
