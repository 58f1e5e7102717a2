"""Who calls whom on the live map, and how much goes there."""

from collections.abc import Iterable, Iterator, Mapping

from controlplane.composed.livemap import dials
from controlplane.composed.livemap.parts import (
    CLIENTS,
    HOST,
    NODE,
    POOL,
    PROXY,
    Edge,
    Part,
    part_id,
)
from controlplane.core.jobs.lives import BEAT, WORKER, Known
from controlplane.fleet.overview import NodeView

GATEWAYS, PAGES = ("all", "gateway"), ("all", "web")
CONNECTOR_ENGINE = "hosted"
REQUESTS, TRACES, JOBS, CONNECTIONS = "req/s", "traces/s", "jobs", "conn."
EDGES_MAX = 400


def edges_of(
    parts: Iterable[Part],
    processes: Iterable[Known],
    nodes: Iterable[NodeView],
    runs: Mapping[str, str],
    jobs_waiting: int | None,
) -> list[Edge]:
    """Edges between parts that are there; `runs` are hosts by the nodes on them."""
    there = {part.id: part for part in parts}
    found = [
        *_from_processes(processes, list(there.values()), jobs_waiting),
        *_to_nodes(processes, nodes, there),
        *_from_hosted(nodes, list(there.values())),
        *(Edge(part_id(HOST, host), part_id(NODE, node)) for node, host in runs.items()),
    ]
    return [each for each in found if each.source in there and each.target in there][:EDGES_MAX]


def _from_processes(
    processes: Iterable[Known], parts: list[Part], jobs_waiting: int | None
) -> Iterator[Edge]:
    for life in (known.life for known in processes):
        own = part_id(life.kind, life.name)
        if life.kind in GATEWAYS:
            rate = life.rates.get("requests")
            yield Edge(CLIENTS, own, rate, REQUESTS)
            yield Edge(own, dials.POSTGRES, rate, REQUESTS)
            yield Edge(own, dials.REDIS, rate, REQUESTS)
            for part in _of(parts, dials.COLLECTOR):
                yield Edge(own, part.id, life.rates.get("traces"), TRACES)
        else:
            waiting = jobs_waiting if life.kind == WORKER else None
            yield Edge(own, dials.REDIS, waiting, JOBS)
        if life.kind not in (*GATEWAYS, BEAT):
            yield Edge(own, dials.POSTGRES)
        if life.kind in PAGES:
            yield from (Edge(own, part.id) for part in _of(parts, dials.IDENTITY))
        if life.kind == WORKER:
            yield from (Edge(own, part.id) for part in _of(parts, dials.WEBHOOK))
        for address, count in life.proxies.items():
            yield Edge(part_id(PROXY, address), own, count, CONNECTIONS)


def _to_nodes(
    processes: Iterable[Known], nodes: Iterable[NodeView], there: Mapping[str, Part]
) -> Iterator[Edge]:
    """Jobs under way on each link; on that of a pool those of all its nodes."""
    owns = {
        known.life.instance: part_id(known.life.kind, known.life.name)
        for known in processes
        if known.life.instance
    }
    jobs: dict[tuple[str, str], int] = {}
    for view in nodes:
        target = part_id(NODE, view.node.name)
        if target not in there:
            target = part_id(POOL, view.node.pool)
        for gateway, facts in view.links.items():
            if gateway in owns:
                link = owns[gateway], target
                jobs[link] = jobs.get(link, 0) + int(facts.get("active", 0))
    yield from (Edge(*link, count, JOBS) for link, count in jobs.items())


def _from_hosted(nodes: Iterable[NodeView], parts: list[Part]) -> Iterator[Edge]:
    for view in nodes:
        if view.node.facts.get("engine") == CONNECTOR_ENGINE:
            own = part_id(NODE, view.node.name)
            yield from (Edge(own, part.id) for part in _of(parts, dials.PROVIDER))


def _of(parts: list[Part], kind: str) -> Iterator[Part]:
    return (part for part in parts if part.kind == kind)
