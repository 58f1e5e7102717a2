"""Celery's application: the entrance of worker and beat.

Jobs that are a service are listed here; those that say what came of it have a `tasks.py`.
"""

import gc
import os

import django
from celery import Celery
from django.utils.module_loading import import_string

SCHEDULED_APPS = ("core", "billing.ledger", "billing.months", "billing.exports", "routing", "slos")
MINUTE_S, HOUR_S = 60.0, 3_600.0
# The name of each, its service, and how often it runs.
SERVICES = {
    "core.answers_forget": ("core.api.idempotency.answers_forget", MINUTE_S),
    "billing.book_costs": ("billing.ledger.journal.costs_book", HOUR_S),
    "billing.forget_claims": ("billing.ledger.services.claims_forget", 600.0),
    "billing.seal_ledger": ("billing.ledger.services.seal_ledger", MINUTE_S),
    "billing.make_partitions": ("billing.ledger.services.make_partitions", HOUR_S),
    "billing.turn_budgets": ("billing.budgets.services.turn_budgets", 10.0),
    "billing.raise_alerts": ("slos.channels.budgets.budgets_tell", MINUTE_S),
    "billing.exports_prune": ("billing.exports.services.exports_prune", HOUR_S),
    "batches.batches_forget": ("batches.services.batches_forget", 300.0),
    "composed.plans_keep": ("composed.planning.plans.plans_keep", 300.0),
    "composed.outside_dial": ("composed.livemap.dials.outside_dial", 10.0),
    "contents.forget": ("contents.services.contents_forget", 300.0),
    "fleet.moments_forget": ("fleet.moments.moments_forget", HOUR_S),
    "insights.hygiene_forget": ("insights.hygiene.hygiene_forget", HOUR_S),
    "slos.messages_send": ("slos.channels.messages.messages_send", 10.0),
    "slos.counts_roll_up": ("slos.upkeep.counts_roll_up", MINUTE_S),
    "slos.counts_forget": ("slos.upkeep.counts_forget", 600.0),
    "telemetry.roll_up": ("telemetry.rollups.roll_up", 30.0),
    "telemetry.make_partitions": ("telemetry.services.make_partitions", HOUR_S),
    "telemetry.drop_old_partitions": ("telemetry.services.drop_old_partitions", HOUR_S),
}

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
every_s = {name: seconds for name, (_, seconds) in SERVICES.items()}
for name, (service, _) in SERVICES.items():
    app.task(name=name)(import_string(f"controlplane.{service}"))
for label in SCHEDULED_APPS:
    every_s |= import_string(f"controlplane.{label}.tasks.EVERY_S")
# A run that waited longer than its own period is stale: the next one does its work.
app.conf.beat_schedule = {
    name: {"task": name, "schedule": seconds, "options": {"expires": seconds}}
    for name, seconds in every_s.items()
}
gc.freeze()
gc.enable()
