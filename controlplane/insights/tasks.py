"""Celery's door to insights' upkeep."""

from celery import shared_task

from controlplane.insights import hygiene

hygiene_forget = shared_task(name="insights.hygiene_forget")(hygiene.hygiene_forget)
EVERY_S = {"insights.hygiene_forget": 3_600.0}
