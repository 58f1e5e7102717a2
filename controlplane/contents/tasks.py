"""Celery's door to the retention of what was said."""

from celery import shared_task

from controlplane.contents import services

forget = shared_task(name="contents.forget")(services.contents_forget)
EVERY_S = {"contents.forget": 300.0}
