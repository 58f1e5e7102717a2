"""PostgreSQL and Redis as they answer now, and the records that Redis has of all others."""

from datetime import datetime
from typing import Any, NamedTuple

import redis

from controlplane.composed.livemap import dials
from controlplane.composed.livemap.parts import LIVE, STORES, MapHealth, MapLevel, MapPart, levelled
from controlplane.core.jobs.lives import Known, Life, connect_redis, lives_read
from controlplane.core.queries import rows
from controlplane.fleet.models import Gateway

JOBS_QUEUE = "celery"
INSTANCE_CHARS = 12
# PostgreSQL's own clock, so that no two are compared.
POSTGRES_SAYS = """
    SELECT now(), extract(epoch FROM now() - pg_postmaster_start_time())::float8,
           current_setting('server_version'), current_setting('max_connections')::integer,
           (SELECT sum(numbackends)::integer FROM pg_stat_database)
"""


class Stores(NamedTuple):
    """PostgreSQL's clock, both parts, what is known of processes, and jobs that wait in Redis."""

    now: datetime
    postgres: MapPart
    redis: MapPart
    known: list[Known]
    jobs_waiting: int | None


def stores_read() -> Stores:
    """Without Redis only gateways are known: by their heartbeats in PostgreSQL."""
    ((now, up_s, version, most, used),) = rows(POSTGRES_SAYS)
    postgres = MapPart(
        id=dials.POSTGRES,
        layer=STORES,
        kind=dials.POSTGRES,
        name="",
        standing=LIVE,
        version=version.partition(" ")[0],
        up_s=up_s,
    )
    postgres = levelled(postgres, [MapLevel("connections", used, most)])
    try:
        with connect_redis() as connection:
            known = lives_read(connection)
            waiting: int = connection.llen(JOBS_QUEUE)
            return Stores(now, postgres, _redis_part(connection), known, waiting)
    except redis.RedisError as error:
        away = MapPart(
            id=dials.REDIS,
            layer=STORES,
            kind=dials.REDIS,
            name="",
            standing=MapHealth("bad", "unreachable"),
            problem=str(error)[: dials.PROBLEM_CHARS_MAX],
        )
        return Stores(now, postgres, away, _gateways_known(now), None)


def _redis_part(connection: redis.Redis) -> MapPart:
    try:
        said: dict[str, Any] = connection.info()
    except redis.exceptions.NoPermissionError:
        said = {}  # It serves; of itself it may tell nothing.
    part = MapPart(
        id=dials.REDIS,
        layer=STORES,
        kind=dials.REDIS,
        name="",
        standing=LIVE,
        version=str(said.get("redis_version", "")),
        up_s=said.get("uptime_in_seconds"),
        rates={"commands": said["instantaneous_ops_per_sec"]} if said else {},
    )
    levels = [MapLevel("connections", said.get("connected_clients", 0), said.get("maxclients", 0))]
    if most := said.get("maxmemory", 0):
        levels.append(MapLevel("memory, bytes", said["used_memory"], most))
    return levelled(part, levels if said else [])


def _gateways_known(now: datetime) -> list[Known]:
    found = []
    for row in Gateway.objects.order_by("started_at"):
        name = row.url.partition("://")[2].partition("/")[0] or row.instance[:INSTANCE_CHARS]
        up_s = (row.heartbeat_at - row.started_at).total_seconds()
        life = Life(kind="gateway", name=name, up_s=up_s, instance=row.instance)
        found.append(Known(life, max(0.0, (now - row.heartbeat_at).total_seconds())))
    return found
