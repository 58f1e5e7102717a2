"""Celery's door to the jobs of budgets."""

from celery import shared_task

from controlplane.billing.budgets import alerts, services


@shared_task(name="billing.turn_budgets")
def turn_budgets() -> int:
    """Periods of budgets that began."""
    return services.turn_budgets()


@shared_task(name="billing.raise_alerts")
def raise_alerts() -> int:
    return alerts.raise_alerts()


EVERY_S = {
    "billing.turn_budgets": 10.0,
    "billing.raise_alerts": 60.0,
}
