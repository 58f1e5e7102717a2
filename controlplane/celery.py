"""Celery's application: the entrance of worker and beat. Each subject has its own `tasks.py`."""

import gc
import os

import django
from celery import Celery
from django.utils.module_loading import import_string

SCHEDULED_APPS = (
    *("core", "billing.ledger", "billing.budgets", "billing.months", "billing.exports"),
    *("batches", "contents", "insights", "routing", "slos", "telemetry"),
)

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
# Celery ignores what Django's checks find, and they import every page and operation.
os.environ.setdefault("CELERY_SKIP_CHECKS", "1")
# What is imported stays, and is shared with the processes of a worker: none looks through it.
gc.disable()
django.setup(set_prefix=False)

import_string("controlplane.core.jobs.heartbeat.connect")()
app = Celery("sluice")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
# A run that waited longer than its own period is stale: the next one does its work.
app.conf.beat_schedule = {
    name: {"task": name, "schedule": seconds, "options": {"expires": seconds}}
    for label in SCHEDULED_APPS
    for name, seconds in import_string(f"controlplane.{label}.tasks.EVERY_S").items()
}
gc.freeze()
gc.enable()
