"""Signs of life of the processes that listen on nothing, worker and beat: keys in Redis that go by
themselves, and `manage.py sluice probe` looks for.

A worker gives one with each heartbeat of Celery's, so from the loop that takes jobs and while its
broker is there; beat with each job that it has handed out, some of which are due each ten seconds.
Neither is a thread that would go on while the process stands still.
"""

from functools import cache
from typing import Any

import redis
import structlog
from celery.signals import after_task_publish, beat_init, heartbeat_sent
from celery.utils.nodenames import default_nodename
from django.conf import settings
from redis.backoff import NoBackoff
from redis.retry import Retry

from controlplane.kernel.clock import monotonic_s

# Six times what beat leaves between two jobs, in a quiet hour and in no other.
ALIVE_S = 60
# Celery's heartbeats come each two seconds, jobs in bursts.
GIVEN_EVERY_S = 5.0
REDIS_S_MAX = 2.0
WORKER, BEAT = "worker", "beat"

log = structlog.get_logger(__name__)


class Heartbeat:
    """The sign of life of this process."""

    def __init__(self, kind: str, name: str = "") -> None:
        self._key = _key(kind, name)
        self._redis = _connect()
        self._given_s = monotonic_s() - GIVEN_EVERY_S

    def give(self) -> None:
        """Give a sign unless one was given just now; without Redis none, and nothing is raised."""
        now_s = monotonic_s()
        if now_s - self._given_s < GIVEN_EVERY_S:
            return
        self._given_s = now_s
        try:
            self._redis.set(self._key, 1, ex=ALIVE_S)
        except redis.RedisError as error:
            log.warning("no_heartbeat", key=self._key, error=type(error).__name__)


def is_alive(kind: str, name: str = "") -> bool:
    """Whether the process gave a sign in the last `ALIVE_S`; raises RedisError."""
    with _connect() as connection:
        return bool(connection.exists(_key(kind, name)))


def worker_name() -> str:
    """What Celery calls a worker of this host that no one has named."""
    name: str = default_nodename("")
    return name


def connect() -> None:
    heartbeat_sent.connect(_worker_lives, weak=False)
    beat_init.connect(_beat_begins, weak=False)


def _worker_lives(sender: Any, **_: Any) -> None:
    _own(WORKER, sender.eventer.hostname).give()


def _beat_begins(**_: Any) -> None:
    after_task_publish.connect(_beat_lives, weak=False)


def _beat_lives(**_: Any) -> None:
    _own(BEAT).give()


@cache
def _own(kind: str, name: str = "") -> Heartbeat:
    return Heartbeat(kind, name)


def _key(kind: str, name: str) -> str:
    return f"sluice:alive:{kind}:{name}"


def _connect() -> redis.Redis:
    return redis.Redis.from_url(
        settings.REDIS_URL,
        socket_timeout=REDIS_S_MAX,
        socket_connect_timeout=REDIS_S_MAX,
        # The next sign is a retry; until then the process has its work to do.
        retry=Retry(NoBackoff(), 0),
    )
