"""The product's Celery, with a clock that has alerts and budgets looked at and told, and plans
made, each second.

Started as `celery -A tests.support.hurried`.
"""

from controlplane.celery import app as app

EACH_SECOND = (
    "slos.objectives_evaluate", "slos.messages_send", "composed.plans_keep", "billing.raise_alerts",
)  # fmt: skip

for name in EACH_SECOND:
    app.conf.beat_schedule[name]["schedule"] = 1.0
