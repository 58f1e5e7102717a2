"""The live map, put together from heartbeats in Redis and from what gateways and agents told
PostgreSQL. A constant number of queries.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime

from controlplane.catalog.selectors import model_list
from controlplane.composed.livemap import dials
from controlplane.composed.livemap.edges import edges_of
from controlplane.composed.livemap.parts import (
    CALLERS,
    CLIENTS,
    GONE,
    HOST,
    NODE,
    OUTSIDE,
    POOL,
    PROXY,
    SERVING,
    WORKING,
    LiveMap,
    MapHealth,
    MapLevel,
    MapPart,
    dialled_part,
    levelled,
    part_id,
    process_part,
    standing_of,
    told_standing,
    with_dialled,
)
from controlplane.composed.livemap.stores import Stores, stores_read
from controlplane.core.audit.entries import Actor
from controlplane.core.jobs.lives import BEAT, WORKER, Known
from controlplane.core.permissions import Action
from controlplane.fleet.models import NodeStart
from controlplane.fleet.overview import NodeView, nodes_of_models
from controlplane.hosts.models import DeploymentReplica
from controlplane.hosts.selectors import host_list
from controlplane.tenants.access import require

# Beyond so many nodes there is one part for each pool.
NODES_DRAWN_MAX = 24
SERVERS = ("all", "gateway", "web")
US_PER_S = 1_000_000
NODE_STANDINGS = {
    "ready": MapHealth("ok", "ready"),
    "pending": MapHealth("warn", "waits for approval"),
    "held": MapHealth("warn", "held back"),
    "draining": MapHealth("warn", "draining"),
    "drained": MapHealth("off", "drained"),
    "leaving": MapHealth("off", "leaving"),
    "quarantined": MapHealth("bad", "quarantined"),
    "away": MapHealth("bad", "not connected"),
    "new": MapHealth("off", "never connected"),
}


def live_map(*, actor: Actor) -> LiveMap:
    """What runs now, for staff."""
    require(actor, Action.FLEET_VIEW)
    stores = stores_read()
    processes = [each for each in stores.known if each.life.kind in (*SERVERS, WORKER, BEAT)]
    processes.sort(key=lambda each: (each.life.kind, each.life.name))
    nodes = nodes_of_models(stores.now, {model.name for model in model_list()})
    grouped = len(nodes) > NODES_DRAWN_MAX
    parts = [
        *_caller_parts(processes),
        *(process_part(each, SERVING) for each in processes),
        *(_pool_parts(nodes, stores.now) if grouped else _node_parts(nodes, stores.now)),
        *_host_parts(actor, stores.now),
        *_dialled_parts(stores),
    ]
    runs = {} if grouped else _hosts_of_nodes()
    return LiveMap(parts, edges_of(parts, processes, nodes, runs, stores.jobs_waiting))


def _caller_parts(processes: Iterable[Known]) -> Iterator[MapPart]:
    """Clients, who tell nothing of themselves, and proxies as far as they have connections."""
    open_now: Counter[str] = Counter()
    for known in processes:
        if standing_of(known) != GONE:
            open_now.update(known.life.proxies)
    yield MapPart(CLIENTS, CALLERS, CLIENTS, "", MapHealth("off", "not watched"))
    for address, count in sorted(open_now.items()):
        part = MapPart(
            part_id(PROXY, address), CALLERS, PROXY, address, MapHealth("ok", "connected")
        )
        yield levelled(part, [MapLevel("connections", count, 0)])


def _node_parts(nodes: list[NodeView], now: datetime) -> Iterator[MapPart]:
    started = {
        (row.node_id, row.epoch): row.created_at
        for row in NodeStart.objects.filter(node__in=[view.node for view in nodes])
    }
    for view in nodes:
        facts = view.node.facts
        since = started.get((view.node.id, facts.get("epoch"))) if view.links else None
        yield levelled(
            MapPart(
                id=part_id(NODE, view.node.name),
                layer=WORKING,
                kind=NODE,
                name=view.node.name,
                standing=_node_standing(view, now),
                version=" on ".join(filter(None, (facts.get("engine"), facts.get("device")))),
                up_s=(now - since).total_seconds() if since else None,
                age_s=_age_s(view.seen_at, now),
                rates=_node_rates(view),
                problem=view.reason,
            ),
            _node_levels(view),
        )


def _node_standing(view: NodeView, now: datetime) -> MapHealth:
    standing = NODE_STANDINGS[view.state]
    if not view.links:
        return standing
    if view.breaker == "open" and standing.health == "ok":
        standing = MapHealth("bad", "breaker open")
    return told_standing(standing, _age_s(view.seen_at, now) or 0.0)


def _node_rates(view: NodeView) -> dict[str, float]:
    running, step_us = view.latest("running"), view.latest("step_us")
    return {"tokens": running * US_PER_S / step_us} if running and step_us else {}


def _node_levels(view: NodeView) -> Iterator[MapLevel]:
    if not view.links:
        return
    yield MapLevel("jobs", view.total("active"), view.total("credits"))
    if (waiting := view.latest("waiting")) is not None:
        yield MapLevel("waiting sequences", waiting, 0)
    if (share := view.kv_share) is not None:
        blocks = view.latest("kv_blocks") or 0
        yield MapLevel("KV blocks", round(share * blocks), blocks)


def _pool_parts(nodes: list[NodeView], now: datetime) -> Iterator[MapPart]:
    pools: dict[str, list[NodeView]] = defaultdict(list)
    for view in nodes:
        pools[view.node.pool].append(view)
    for name, views in sorted(pools.items()):
        ready = sum(_node_standing(view, now).health == "ok" for view in views)
        health = "ok" if ready == len(views) else "warn" if ready else "bad"
        part = MapPart(
            id=part_id(POOL, name),
            layer=WORKING,
            kind=POOL,
            name=name,
            standing=MapHealth(health, f"{ready} of {len(views)} ready"),
        )
        active, places = (sum(v.total(fact) for v in views) for fact in ("active", "credits"))
        yield levelled(part, [MapLevel("jobs", active, places)])


def _host_parts(actor: Actor, now: datetime) -> Iterator[MapPart]:
    for host in host_list(user=actor):
        age_s = _age_s(host.seen_at, now)
        standing = MapHealth("off", "never connected")
        if age_s is not None:
            standing = told_standing(MapHealth("ok", "reports"), age_s)
        told = host.inventory
        levels = [
            MapLevel(f"{name}, bytes", told[name] - told[f"{name}_free"], told[name])
            for name in ("memory", "disk")
            if told.get(name) and told.get(f"{name}_free") is not None
        ]
        part = MapPart(
            id=part_id(HOST, host.name),
            layer=WORKING,
            kind=HOST,
            name=host.name,
            standing=standing,
            age_s=age_s,
        )
        yield levelled(part, levels)


def _hosts_of_nodes() -> dict[str, str]:
    """The name of the host that runs a node, by the node's."""
    rows = DeploymentReplica.objects.values_list("node_name", "host__name")
    return dict(rows)


def _dialled_parts(stores: Stores) -> Iterator[MapPart]:
    known = {
        (each.life.kind, each.life.name): each
        for each in stores.known
        if each.life.kind in dials.KINDS
    }
    for part in (stores.postgres, stores.redis):
        yield with_dialled(part, known.pop((part.kind, ""), None))
    for key in sorted(known):
        yield dialled_part(known[key], OUTSIDE)


def _age_s(seen_at: datetime | None, now: datetime) -> float | None:
    return None if seen_at is None else max(0.0, (now - seen_at).total_seconds())
