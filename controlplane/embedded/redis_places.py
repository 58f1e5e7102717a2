"""Where Redis is: at its address, or wherever its Sentinels say that the master is now."""

from typing import Any, NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

import redis
import redis.asyncio.sentinel
import redis.sentinel
from redis.asyncio import ConnectionPool as AsyncPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.connection import parse_url

# Without types of their own.
_kit: Any = redis.sentinel
_async_kit: Any = redis.asyncio.sentinel
SENTINEL_SCHEME, SECURE_SENTINEL_SCHEME = "redis+sentinel", "rediss+sentinel"
SENTINEL_SCHEMES = (SENTINEL_SCHEME, SECURE_SENTINEL_SCHEME)
SENTINEL_PORT = 26_379
SENTINEL_LOGIN = frozenset({"sentinel_username", "sentinel_password"})
# Of redis-py, for Sentinels and master alike.
CHECKED = {"ssl_cert_reqs": "required"}
TLS_PARAMETERS = frozenset(
    {"ssl_ca_certs", "ssl_cert_reqs", "ssl_certfile", "ssl_check_hostname", "ssl_keyfile"}
)
# A silent one must not cost the time in which another would answer.
SENTINEL_S_MAX = 0.3


class Sentinels(NamedTuple):
    """`login` has the master's `username`, `password` and `db`, `own` what the Sentinels ask for of
    these; `tls` the parameters of both, none without TLS.
    """

    places: list[tuple[str, int]]
    master: str
    login: dict[str, Any]
    own: dict[str, Any]
    tls: dict[str, Any]

    @property
    def authority(self) -> str:
        """User and password as they stand in a URL."""
        name, password = (quote(self.login[of] or "", safe="") for of in ("username", "password"))
        return f"{name}:{password}@" if password else ""

    @property
    def wanted(self) -> dict[str, Any]:
        """Options of a client of the master."""
        return {**self.login, **self._secure}

    @property
    def asked(self) -> dict[str, Any]:
        """Options of a client of the Sentinels."""
        return {**self.own, **self._secure}

    @property
    def _secure(self) -> dict[str, Any]:
        return {"ssl": True, **self.tls} if self.tls else {}


def sentinels_of(url: str) -> Sentinels | None:
    """What `redis+sentinel://user:password@host:port,host:port/master/db` names, with `rediss` by
    TLS, or None of another URL; raises ValueError.
    """
    parts = urlsplit(url)
    if parts.scheme not in SENTINEL_SCHEMES:
        return None
    hosts = [urlsplit(f"//{each}") for each in parts.netloc.rpartition("@")[2].split(",")]
    master, _, database = parts.path.strip("/").partition("/")
    if not master or not all(host.hostname for host in hosts):
        raise ValueError(f"must be {parts.scheme}://user:password@host:port,host:port/master/0")
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    secure = parts.scheme == SECURE_SENTINEL_SCHEME
    if unknown := given.keys() - SENTINEL_LOGIN - (TLS_PARAMETERS if secure else set()):
        raise ValueError(f"takes no parameter {min(unknown)} with {parts.scheme}://")
    login = {"username": _text(parts.username), "password": _text(parts.password)}
    places = [(str(host.hostname), host.port or SENTINEL_PORT) for host in hosts]
    own = {name.removeprefix("sentinel_"): given.pop(name) for name in SENTINEL_LOGIN & set(given)}
    # Read as redis-py reads those of its own addresses.
    tls = parse_url(f"rediss://?{urlencode({**CHECKED, **given})}") if secure else {}
    tls.pop("connection_class", None)
    return Sentinels(places, master, {**login, "db": int(database or 0)}, own, tls)


def _text(given: str | None) -> str | None:
    return unquote(given) if given else None


def redis_pool(url: str, **options: Any) -> redis.ConnectionPool:
    """Connections of redis-py with these options."""
    if (named := sentinels_of(url)) is None:
        return redis.ConnectionPool.from_url(url, **options)
    asked = _kit.Sentinel(named.places, sentinel_kwargs={**options, **named.asked})
    made: redis.ConnectionPool = _kit.SentinelConnectionPool(
        named.master, asked, **named.wanted, **options
    )
    return made


def async_redis_pool(url: str, **options: Any) -> AsyncPool:
    """The same for event loops."""
    if (named := sentinels_of(url)) is None:
        return AsyncPool.from_url(url, **options)
    asked = _async_kit.Sentinel(named.places, sentinel_kwargs={**options, **named.asked})
    made: AsyncPool = _async_kit.SentinelConnectionPool(
        named.master, asked, **named.wanted, **options
    )
    return made


def redis_trouble(url: str, error: Exception) -> str:
    """The error in words; where no Sentinel named a master, in those of each."""
    if not isinstance(error, _kit.MasterNotFoundError) or (named := sentinels_of(url)) is None:
        return str(error)
    return "; ".join(f"{host}: {_asked(named, host, port)}" for host, port in named.places)


def _asked(named: Sentinels, host: str, port: int) -> str:
    options: dict[str, Any] = {"socket_timeout": SENTINEL_S_MAX, **named.asked}
    try:
        with redis.Redis(host, port, **options) as sentinel:
            sentinel.sentinel_master(named.master)
    except redis.RedisError as error:
        return str(error)
    return f"{named.master} is down"


async def master_url(url: str) -> str:
    """The address itself, or that of the master now; raises OSError."""
    if (named := sentinels_of(url)) is None:
        return url
    once = {"socket_timeout": SENTINEL_S_MAX, "retry": Retry(NoBackoff(), 0)}
    asked = _async_kit.Sentinel(named.places, sentinel_kwargs={**once, **named.asked})
    try:
        host, port = await asked.discover_master(named.master)
    except redis.RedisError as error:
        # Its own words name every option of every client.
        raise ConnectionError(f"no Sentinel names the master of {named.master}") from error
    finally:
        for sentinel in asked.sentinels:
            await sentinel.aclose()
    place = f"{named.authority}{in_url(host)}:{port}/{named.login['db']}"
    return f"rediss://{place}?{urlencode(named.tls)}" if named.tls else f"redis://{place}"


def in_url(host: str) -> str:
    """A host as URLs have it: addresses of IPv6 in brackets."""
    return f"[{host}]" if ":" in host else host
