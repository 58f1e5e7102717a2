"""The worker with a short time limit, and two jobs more: one never ends, one says that it ran.

Started as `celery -A tests.support.hanging worker`.
"""

import time

import redis
from celery import shared_task
from django.conf import settings

from controlplane.celery import app as app

RAN = "tests:ran"
LIMIT_S = 1
app.conf.task_time_limit = LIMIT_S


@shared_task(name="tests.hang")
def hang() -> None:
    """Never ends, and holds on to what it has."""
    while True:
        time.sleep(60)


@shared_task(name="tests.run")
def run() -> None:
    """Leaves a mark."""
    with redis.Redis.from_url(settings.REDIS_URL) as store:
        store.incr(RAN)
