"""Celery's door to the jobs of budgets."""

from celery import shared_task

from controlplane.billing.budgets import services

turn_budgets = shared_task(name="billing.turn_budgets")(services.turn_budgets)
raise_alerts = shared_task(name="billing.raise_alerts")(services.raise_alerts)
EVERY_S = {"billing.turn_budgets": 10.0, "billing.raise_alerts": 60.0}
