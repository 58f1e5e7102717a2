"""How often something happened within its window, for limits on people and programs.

Shared by all processes over Redis. While that is away each process counts what it sees itself.
"""

from collections import OrderedDict
from threading import Lock
from time import monotonic

import redis
import structlog
from django.conf import settings
from redis.backoff import NoBackoff
from redis.retry import Retry

from controlplane.embedded.redis_places import redis_pool

PREFIX = "sluice:count:"
# Redis is asked within a request: one that is slow counts as away.
TIMEOUT_S = 0.25
# How long it is not asked again once it was away.
AWAY_S = 5
# Of this process' own: beyond it the oldest are forgotten.
KEYS_MAX = 10_000
_log = structlog.get_logger(__name__)


class SharedCounts:
    """Counts by key; each begins again when its window has passed."""

    def __init__(self) -> None:
        self._own: OrderedDict[str, tuple[int, float]] = OrderedDict()
        self._lock = Lock()
        self._link: redis.Redis | None = None
        self._away_until_s = 0.0

    def add(self, key: str, window_s: int) -> int:
        """One more; how many there are in its window with this one."""
        if monotonic() >= self._away_until_s:
            try:
                return self._add_shared(PREFIX + key, window_s)
            except (redis.RedisError, OSError) as error:
                self._away_until_s = monotonic() + AWAY_S
                _log.warning("counting without Redis", error=str(error))
        return self._add_own(key, window_s)

    def _add_shared(self, key: str, window_s: int) -> int:
        if self._link is None:
            pool = redis_pool(
                settings.REDIS_URL,
                socket_timeout=TIMEOUT_S,
                socket_connect_timeout=TIMEOUT_S,
                retry=Retry(NoBackoff(), 0),
            )
            self._link = redis.Redis(connection_pool=pool)
        with self._link.pipeline() as calls:
            calls.set(key, 0, ex=window_s, nx=True)
            calls.incr(key)
            return int(calls.execute()[1])

    def _add_own(self, key: str, window_s: int) -> int:
        now = monotonic()
        with self._lock:
            count, ends = self._own.pop(key, (0, now + window_s))
            if ends <= now:
                count, ends = 0, now + window_s
            self._own[key] = (count + 1, ends)
            if len(self._own) > KEYS_MAX:
                self._own.popitem(last=False)
        return count + 1


counts = SharedCounts()
