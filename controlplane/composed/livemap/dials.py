"""How long it takes to connect to what is outside our processes: a worker dials each part again and
again, without a request, and keeps what came of it as a record beside those of processes.
"""

import asyncio
import socket
import ssl
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import redis
from django.conf import settings
from django.db import connection

from controlplane.connections.models import Connection
from controlplane.core.jobs.lives import Life, connect_redis, lives_put, lives_read
from controlplane.core.outbound import NotReached, WayOut, public_address, way_to
from controlplane.core.permissions import organization_scope
from controlplane.core.seal import BrokenSeal
from controlplane.embedded.redis_places import master_url, sentinels_of
from controlplane.kernel.clock import monotonic_s
from controlplane.slos.channels.delivery import EMAIL, address_of
from controlplane.slos.models import EVERYONE, Channel
from controlplane.tenants.models import Organization
from inference.tls import client_context

POSTGRES, REDIS = "postgres", "redis"
PROVIDER, IDENTITY, COLLECTOR, WEBHOOK = "provider", "identity", "collector", "webhook"
STORES = frozenset({POSTGRES, REDIS})
# Their own clients check certificates as they are told; here only time is measured.
UNCHECKED = STORES | {COLLECTOR}
KINDS = STORES | {PROVIDER, IDENTITY, COLLECTOR, WEBHOOK}
TARGETS_MAX = 40
DIALLERS = 20
DIAL_S_MAX = 2.0
MS_PER_S = 1_000
PROBLEM_CHARS_MAX = 200
NAME_CHARS_MAX = 100
PORTS = {"https": 443, "http": 80, "rediss": 6_379, "redis": 6_379}
SECURE = ("https", "rediss")
SCHEMES = {True: "https", False: "http"}
# Names that tenants' servers answer slowly hold up neither their deliveries nor our own dials.
_OURS, _TENANTS = (ThreadPoolExecutor(DIALLERS, f"dial-look-up-{of}") for of in ("own", "tenants"))
# What a client of PostgreSQL sends first where it wants TLS, and what a server with TLS answers.
SSL_REQUEST, SSL_YES = struct.pack("!ii", 8, 80_877_103), b"S"


class DialTarget(NamedTuple):
    """What to dial: a host and port, or a socket's `path`. `private` permits our own network."""

    kind: str
    name: str
    host: str = ""
    port: int = 0
    path: str = ""
    secure: bool = False
    private: bool = True


def outside_dial() -> int:
    """Dial all targets and keep what came of it; returns how many answered."""
    targets = {(each.kind, each.name): each for each in _targets()}
    chosen = list(targets.values())[:TARGETS_MAX]
    with ThreadPoolExecutor(DIALLERS, "dial") as diallers:
        found = list(diallers.map(dial, chosen))
    lives_put(found)
    _forget(set(targets))
    return sum(not life.problem for life in found)


def dial(target: DialTarget) -> Life:
    """Connect, and agree on TLS where it has that."""
    took: dict[str, Any] = {}
    problem = ""
    try:
        with closing(_connect(target, took)) as wire:
            _secure(target, wire, took)
    except (OSError, NotReached) as error:
        problem = str(error)[:PROBLEM_CHARS_MAX] or type(error).__name__
    return Life(kind=target.kind, name=target.name, problem=problem, **took)


def _connect(target: DialTarget, took: dict[str, Any]) -> socket.socket:
    if target.path:
        began_s = monotonic_s()
        wire = socket.socket(socket.AF_UNIX)
        wire.settimeout(DIAL_S_MAX)
        try:
            wire.connect(target.path)
        except OSError:
            wire.close()
            raise
    else:
        way = _way(target)
        began_s = monotonic_s()
        wire = socket.create_connection(way[:2], DIAL_S_MAX)
        try:
            way.begin(wire)
        except (OSError, NotReached):
            wire.close()
            raise
    took["connect_ms"] = _ms_since(began_s)
    return wire


def _way(target: DialTarget) -> WayOut:
    """As its clients go: through a proxy, if they would, to all but stores."""
    host, port, private = target.host, target.port, target.private
    if target.kind in STORES:
        return WayOut(public_address(host, port, private=private, look_ups=_OURS), port)
    scheme, look_ups = SCHEMES[target.secure], _TENANTS if target.kind == WEBHOOK else _OURS
    return way_to(host, port, scheme=scheme, private=private, look_ups=look_ups)


def _secure(target: DialTarget, wire: socket.socket, took: dict[str, Any]) -> None:
    began_s = monotonic_s()
    secure = target.secure
    if target.kind == POSTGRES and not target.path:
        wire.sendall(SSL_REQUEST)
        secure = wire.recv(1) == SSL_YES
    if not secure:
        return
    context = client_context()
    if target.kind in UNCHECKED:
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    with context.wrap_socket(wire, server_hostname=target.host):
        took["tls_ms"] = _ms_since(began_s)


def _ms_since(began_s: float) -> float:
    return round(MS_PER_S * (monotonic_s() - began_s), 2)


def _targets() -> Iterator[DialTarget]:
    yield _postgres()
    yield redis_target()
    for provider in settings.OIDC_PROVIDERS:
        yield _target(IDENTITY, _place(provider.issuer), provider.issuer)
    if settings.TRACES_ENDPOINT:
        yield _target(COLLECTOR, _place(settings.TRACES_ENDPOINT), settings.TRACES_ENDPOINT)
    for row in Connection.objects.filter(removed_at=None, enabled=True).order_by("name"):
        yield _target(PROVIDER, row.name, row.url)
    yield from _webhooks()


def _postgres() -> DialTarget:
    """Of several hosts the one that serves now."""
    connection.ensure_connection()
    host, port = connection.connection.info.host, connection.connection.info.port
    path = f"{host}/.s.PGSQL.{port}" if host.startswith("/") else ""
    return DialTarget(POSTGRES, "", host, port, path)


def redis_target() -> DialTarget:
    """With Sentinels the master that they name; where none answers, the first of them."""
    url = settings.REDIS_URL
    if (named := sentinels_of(url)) is None:
        return _target(REDIS, "", url)
    try:
        return _target(REDIS, "", asyncio.run(master_url(url)))
    except OSError:
        return DialTarget(REDIS, "", *named.places[0], secure=bool(named.tls))


def _webhooks() -> Iterator[DialTarget]:
    """One for each host, whoever's channels lead there: a map names no tenant."""
    ids = Organization.objects.order_by("id").values_list("id", flat=True)
    with organization_scope([EVERYONE, *ids]):
        rows = list(Channel.objects.exclude(kind=EMAIL).order_by("id")[:TARGETS_MAX])
    for row in rows:
        try:
            address = address_of(row.id, row.organization, bytes(row.sealed))
        except BrokenSeal:
            continue  # Its deliveries say so.
        yield _target(WEBHOOK, _place(address), address, private=settings.WEBHOOKS_PRIVATE)


def _target(kind: str, name: str, url: str, *, private: bool = True) -> DialTarget:
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return DialTarget(kind, name, path=unquote(parts.path))
    host, port = parts.hostname or "", parts.port or PORTS.get(parts.scheme, 443)
    secure = parts.scheme in SECURE
    return DialTarget(kind, name[:NAME_CHARS_MAX], host, port, secure=secure, private=private)


def _place(url: str) -> str:
    """Host and port, without what else an address may tell."""
    return urlsplit(url).netloc.rpartition("@")[2]


def _forget(kept: set[tuple[str, str]]) -> None:
    """Remove the records of what is no longer dialled."""
    try:
        with connect_redis() as connection:
            lives = [each.life for each in lives_read(connection)]
    except redis.RedisError:
        return
    old = [each for each in lives if each.kind in KINDS and (each.kind, each.name) not in kept]
    if old:
        lives_put(old, drop=True)
