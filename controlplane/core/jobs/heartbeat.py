"""Signs of life of the processes that listen on nothing, worker and beat: the live map draws them,
and `manage.py sluice probe` looks for them.

A worker gives one with each heartbeat of Celery's, so from the loop that takes jobs and while its
broker is there; beat with each look at what is due, at least one a second. Neither is a thread that
would go on while the process stands still.
"""

from typing import Any

import redis
from celery.beat import PersistentScheduler
from celery.signals import heartbeat_sent, task_failure, worker_init, worker_shutdown
from celery.utils.nodenames import default_nodename
from celery.worker import state

from controlplane.core.jobs.lives import (
    BEAT,
    KEPT_S,
    MS_PER_S,
    WORKER,
    connect_redis,
    key_of,
    lives_put,
    own_life,
)
from controlplane.kernel.clock import monotonic_s

# Probes forgive a busy machine.
ALIVE_S = 60
# Celery's heartbeats come each two seconds, looks of beat in bursts.
GIVEN_EVERY_S = 1.0
FAILED = "failed"
# The worker of this process, once it has begun.
_workers: list[Any] = []


class Heartbeat:
    """The signs of life of this process."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._given_s = monotonic_s() - GIVEN_EVERY_S

    def give(self, name: str = "", **facts: Any) -> None:
        """Give a sign unless one was given just now; without Redis none, and nothing is raised."""
        now_s = monotonic_s()
        if now_s - self._given_s >= GIVEN_EVERY_S:
            self._given_s = now_s
            lives_put([own_life(self._kind, name, **facts)])


_worker = Heartbeat(WORKER)


class LivingScheduler(PersistentScheduler):
    """Beat's own, which gives a sign of life with each look at what is due."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self._heartbeat = Heartbeat(BEAT)
        super().__init__(*args, **options)

    def tick(self, *args: Any, **options: Any) -> float:
        wait_s: float = super().tick(*args, **options)
        self._heartbeat.give()
        return wait_s

    def close(self) -> None:
        lives_put([own_life(BEAT, "")], drop=True)
        super().close()


def is_alive(kind: str, name: str = "") -> bool:
    """Whether the process gave a sign in the last `ALIVE_S`; raises RedisError."""
    with connect_redis() as connection:
        left_ms: int = connection.pttl(key_of(kind, name))
    return left_ms > (KEPT_S - ALIVE_S) * MS_PER_S


def worker_name() -> str:
    """What Celery calls a worker of this host that no one has named."""
    name: str = default_nodename("")
    return name


def connect() -> None:
    worker_init.connect(_worker_begins, weak=False)
    heartbeat_sent.connect(_worker_lives, weak=False)
    worker_shutdown.connect(_worker_ends, weak=False)
    task_failure.connect(_job_failed, weak=False)


def _worker_begins(sender: Any, **_: Any) -> None:
    _workers[:] = [sender]


def _worker_lives(sender: Any, **_: Any) -> None:
    name = sender.eventer.hostname
    places = sum(int(worker.concurrency or 0) for worker in _workers)
    levels = {"jobs": (len(state.active_requests), places)}
    _worker.give(name, levels=levels, problem=_failed(name))


def _worker_ends(sender: Any, **_: Any) -> None:
    lives_put([own_life(WORKER, sender.hostname)], drop=True)


def _job_failed(sender: Any, exception: BaseException, **_: Any) -> None:
    """In a worker's own process for jobs. What an error says may be secret; its name is not."""
    told = f"job {sender.name} failed: {type(exception).__name__}"
    try:
        with connect_redis() as connection:
            connection.set(key_of(FAILED, sender.request.hostname), told, ex=ALIVE_S)
    except redis.RedisError:
        return  # The log has the job's failure.


def _failed(name: str) -> str:
    """The last job that failed in this minute."""
    try:
        with connect_redis() as connection:
            told: bytes = connection.get(key_of(FAILED, name)) or b""
    except redis.RedisError:
        return ""
    return told.decode()
