"""Celery's door to the jobs of budgets."""

from __future__ import annotations

from celery import shared_task

from controlplane.billing.budgets import alerts, services


@shared_task(name="billing.turn_budgets")
def turn_budgets() -> int:
    """Periods of budgets that began."""
    return services.turn_budgets()


@shared_task(name="billing.raise_alerts")
def raise_alerts() -> int:
    return alerts.raise_alerts()


BEAT_SCHEDULE = {
    "billing.turn_budgets": {
        "task": "billing.turn_budgets",
        "schedule": 10.0,
        "options": {"expires": 10.0},
    },
    "billing.raise_alerts": {
        "task": "billing.raise_alerts",
        "schedule": 60.0,
        "options": {"expires": 60.0},
    },
}
