"""Where Redis is: at its address, or wherever its Sentinels say that the master is now."""

from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlsplit

import redis
import redis.asyncio.sentinel
import redis.sentinel
from redis.asyncio import ConnectionPool as AsyncPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

# Without types of their own.
_kit: Any = redis.sentinel
_async_kit: Any = redis.asyncio.sentinel
SENTINEL_SCHEME = "redis+sentinel"
SENTINEL_PORT = 26_379
# A silent one must not cost the time in which another would answer.
SENTINEL_S_MAX = 0.3


class Sentinels(NamedTuple):
    """`login` has the master's `username`, `password` and `db`."""

    places: list[tuple[str, int]]
    master: str
    login: dict[str, Any]

    @property
    def authority(self) -> str:
        """User and password as they stand in a URL."""
        name, password = (quote(self.login[of] or "", safe="") for of in ("username", "password"))
        return f"{name}:{password}@" if password else ""


def sentinels_of(url: str) -> Sentinels | None:
    """What `redis+sentinel://user:password@host:port,host:port/master/db` names, or None of another
    URL; raises ValueError.
    """
    parts = urlsplit(url)
    if parts.scheme != SENTINEL_SCHEME:
        return None
    hosts = [urlsplit(f"//{each}") for each in parts.netloc.rpartition("@")[2].split(",")]
    master, _, database = parts.path.strip("/").partition("/")
    if not master or not all(host.hostname for host in hosts) or parts.query:
        raise ValueError(f"must be {SENTINEL_SCHEME}://user:password@host:port,host:port/master/0")
    login = {"username": _text(parts.username), "password": _text(parts.password)}
    places = [(str(host.hostname), host.port or SENTINEL_PORT) for host in hosts]
    return Sentinels(places, master, {**login, "db": int(database or 0)})


def _text(given: str | None) -> str | None:
    return unquote(given) if given else None


def redis_pool(url: str, **options: Any) -> redis.ConnectionPool:
    """Connections of redis-py with these options."""
    if (named := sentinels_of(url)) is None:
        return redis.ConnectionPool.from_url(url, **options)
    asked = _kit.Sentinel(named.places, sentinel_kwargs=options)
    made: redis.ConnectionPool = _kit.SentinelConnectionPool(
        named.master, asked, **named.login, **options
    )
    return made


def async_redis_pool(url: str, **options: Any) -> AsyncPool:
    """The same for event loops."""
    if (named := sentinels_of(url)) is None:
        return AsyncPool.from_url(url, **options)
    asked = _async_kit.Sentinel(named.places, sentinel_kwargs=options)
    made: AsyncPool = _async_kit.SentinelConnectionPool(
        named.master, asked, **named.login, **options
    )
    return made


async def master_url(url: str) -> str:
    """The address itself, or that of the master now; raises OSError."""
    if (named := sentinels_of(url)) is None:
        return url
    once = {"socket_timeout": SENTINEL_S_MAX, "retry": Retry(NoBackoff(), 0)}
    asked = _async_kit.Sentinel(named.places, sentinel_kwargs=once)
    try:
        host, port = await asked.discover_master(named.master)
    except redis.RedisError as error:
        raise ConnectionError(f"Sentinel: {error}") from error
    finally:
        for sentinel in asked.sentinels:
            await sentinel.aclose()
    return f"redis://{named.authority}{in_url(host)}:{port}/{named.login['db']}"


def in_url(host: str) -> str:
    """A host as URLs have it: addresses of IPv6 in brackets."""
    return f"[{host}]" if ":" in host else host
