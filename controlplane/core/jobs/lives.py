"""Records of what runs, in Redis: small, bounded, and gone by themselves. The live map draws them.

The age of a record is what Redis has taken off its time to live: no two clocks are compared.
"""

import os
import platform
import socket
from functools import cache
from typing import Any
from urllib.parse import urlsplit

import msgspec
import redis
import structlog
from django.conf import settings
from redis.backoff import NoBackoff
from redis.retry import Retry

from controlplane.embedded.redis_places import redis_pool
from controlplane.kernel.clock import monotonic_s, wall_s

# So long the map still shows what has ended without saying so.
KEPT_S = 600
REDIS_S_MAX = 2.0
RECORDS_MAX = 500
RECORD_BYTES_MAX = 4_096
RELEASE = "1"
VERSION = f"{RELEASE}, Python {platform.python_version()}"
MS_PER_S = 1_000
WORKER, BEAT = "worker", "beat"
_INDEX = "sluice:alive"
_STARTED_S = monotonic_s()

log = structlog.get_logger(__name__)


class Life(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a process tells of itself, or a worker of what it has dialled.

    `levels` are what is used and its bound, 0 where there is none; `rates` are per second, and
    `proxies` open connections by address. `problem` is empty where all is well.
    """

    kind: str
    name: str
    up_s: float | None = None
    version: str = ""
    instance: str = ""
    problem: str = ""
    levels: dict[str, tuple[float, float]] = {}
    rates: dict[str, float] = {}
    proxies: dict[str, int] = {}
    connect_ms: float | None = None
    tls_ms: float | None = None


class Known(msgspec.Struct, frozen=True):
    """A record and its age in seconds."""

    life: Life
    age_s: float


def own_life(kind: str, name: str, **facts: Any) -> Life:
    """A record of this process."""
    up_s = round(monotonic_s() - _STARTED_S, 1)
    return Life(kind=kind, name=name, up_s=up_s, version=VERSION, **facts)


def place_name() -> str:
    """What this process is called: its own address, if it is told one, is the same after a
    restart; else its host and number.
    """
    return urlsplit(settings.ADVERTISE_URL).netloc or f"{socket.gethostname()}:{os.getpid()}"


def life_put(pipe: Any, life: Life) -> None:
    """Queue what writes a record, in a pipeline of either of Redis' clients."""
    record = msgspec.json.encode(life)
    if len(record) > RECORD_BYTES_MAX:
        record = msgspec.json.encode(
            Life(kind=life.kind, name=life.name, problem="too much to tell")
        )
    key = key_of(life.kind, life.name)
    pipe.set(key, record, ex=KEPT_S)
    pipe.zadd(_INDEX, {key: wall_s()})
    pipe.zremrangebyrank(_INDEX, 0, -RECORDS_MAX - 1)


def life_drop(pipe: Any, life: Life) -> None:
    """Queue what removes the record of a process that ends as it was asked to."""
    key = key_of(life.kind, life.name)
    pipe.delete(key)
    pipe.zrem(_INDEX, key)


def lives_put(lives: list[Life], *, drop: bool = False) -> None:
    """Write or remove records; without Redis nothing is raised."""
    try:
        with connect_redis() as connection, connection.pipeline(transaction=False) as pipe:
            for life in lives:
                (life_drop if drop else life_put)(pipe, life)
            pipe.execute()
    except redis.RedisError as error:
        log.warning("no_heartbeat", kind=lives[0].kind, error=type(error).__name__)


def lives_read(connection: redis.Redis) -> list[Known]:
    """All records that are kept, at most `RECORDS_MAX`; raises RedisError."""
    keys: Any = connection.zrange(_INDEX, 0, RECORDS_MAX - 1)
    with connection.pipeline(transaction=False) as pipe:
        for key in keys:
            pipe.get(key)
            pipe.pttl(key)
        answers = pipe.execute()
    found = (_known(*pair) for pair in zip(answers[::2], answers[1::2], strict=True))
    return [known for known in found if known is not None]


def _known(record: bytes | None, left_ms: int) -> Known | None:
    """None where it has gone, or is of a release that writes others."""
    try:
        life = msgspec.json.decode(record or b"", type=Life)
    except msgspec.DecodeError:
        return None
    return Known(life, max(0.0, KEPT_S - left_ms / MS_PER_S))


def key_of(kind: str, name: str) -> str:
    return f"{_INDEX}:{kind}:{name}"


def redis_options(retry: Any) -> dict[str, Any]:
    """Of either of Redis' clients: an answer in time or none. The next sign is a retry; until then
    the process has its work to do.
    """
    return {
        "socket_timeout": REDIS_S_MAX,
        "socket_connect_timeout": REDIS_S_MAX,
        "retry": retry(NoBackoff(), 0),
    }


def connect_redis() -> redis.Redis:
    """A client whose connection stays open for the next one."""
    return redis.Redis(connection_pool=_pool(settings.REDIS_URL))


@cache
def _pool(url: str) -> redis.ConnectionPool:
    return redis_pool(url, **redis_options(Retry))
