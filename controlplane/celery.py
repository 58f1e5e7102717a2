"""Celery's application: the worker's and beat's entrance. Tasks live in each app's `tasks.py`."""

import os

import django
from celery import Celery
from django.utils.module_loading import import_string

SCHEDULED_APPS = ("core", "billing", "billing.exports", "insights", "routing", "slos", "telemetry")

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
django.setup(set_prefix=False)

import_string("controlplane.core.heartbeat.connect")()
app = Celery("sluice")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
app.conf.beat_schedule = {
    name: entry
    for label in SCHEDULED_APPS
    for name, entry in import_string(f"controlplane.{label}.tasks.BEAT_SCHEDULE").items()
}
