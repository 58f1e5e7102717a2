"""Who calls whom on the live map, and how much goes there."""

from collections.abc import Iterable, Iterator, Mapping

from controlplane.composed.livemap import dials
from controlplane.composed.livemap.parts import (
    CLIENTS,
    HOST,
    NODE,
    POOL,
    PROXY,
    MapEdge,
    MapPart,
    part_id,
)
from controlplane.core.jobs.lives import BEAT, WORKER, Known
from controlplane.fleet.overview import NodeView

GATEWAYS, PAGES = ("all", "gateway"), ("all", "web")
CONNECTOR_ENGINE = "hosted"
REQUESTS, TRACES, JOBS, CONNECTIONS = "req/s", "traces/s", "jobs", "conn."
EDGES_MAX = 400


def edges_of(
    parts: Iterable[MapPart],
    processes: Iterable[Known],
    nodes: Iterable[NodeView],
    runs: Mapping[str, str],
    jobs_waiting: int | None,
) -> list[MapEdge]:
    """Edges between parts that are there; `runs` are hosts by the nodes on them."""
    there = {part.id: part for part in parts}
    found = [
        *_from_processes(processes, list(there.values()), jobs_waiting),
        *_to_nodes(processes, nodes, there),
        *_from_hosted(nodes, list(there.values())),
        *(MapEdge(part_id(HOST, host), part_id(NODE, node)) for node, host in runs.items()),
    ]
    return [each for each in found if each.source in there and each.target in there][:EDGES_MAX]


def _from_processes(
    processes: Iterable[Known], parts: list[MapPart], jobs_waiting: int | None
) -> Iterator[MapEdge]:
    for life in (known.life for known in processes):
        own = part_id(life.kind, life.name)
        if life.kind in GATEWAYS:
            rate = life.rates.get("requests")
            yield MapEdge(CLIENTS, own, rate, REQUESTS)
            yield MapEdge(own, dials.POSTGRES, rate, REQUESTS)
            yield MapEdge(own, dials.REDIS, rate, REQUESTS)
            for part in _of(parts, dials.COLLECTOR):
                yield MapEdge(own, part.id, life.rates.get("traces"), TRACES)
        else:
            waiting = jobs_waiting if life.kind == WORKER else None
            yield MapEdge(own, dials.REDIS, waiting, JOBS)
        if life.kind not in (*GATEWAYS, BEAT):
            yield MapEdge(own, dials.POSTGRES)
        if life.kind in PAGES:
            yield from (MapEdge(own, part.id) for part in _of(parts, dials.IDENTITY))
        if life.kind == WORKER:
            yield from (MapEdge(own, part.id) for part in _of(parts, dials.WEBHOOK))
        for address, count in life.proxies.items():
            yield MapEdge(part_id(PROXY, address), own, count, CONNECTIONS)


def _to_nodes(
    processes: Iterable[Known], nodes: Iterable[NodeView], there: Mapping[str, MapPart]
) -> Iterator[MapEdge]:
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
    yield from (MapEdge(*link, count, JOBS) for link, count in jobs.items())


def _from_hosted(nodes: Iterable[NodeView], parts: list[MapPart]) -> Iterator[MapEdge]:
    for view in nodes:
        if view.node.facts.get("engine") == CONNECTOR_ENGINE:
            own = part_id(NODE, view.node.name)
            yield from (MapEdge(own, part.id) for part in _of(parts, dials.PROVIDER))


def _of(parts: list[MapPart], kind: str) -> Iterator[MapPart]:
    return (part for part in parts if part.kind == kind)
