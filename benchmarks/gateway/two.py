"""One gateway and two on the same machine, with limits, ledger and node shared."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.gateway import asked
from benchmarks.gateway.groups import GATEWAY_APP
from benchmarks.gateway.turns import CLIENTS, Run, Server
from benchmarks.load import Tally, Work, closed_loop, percentile
from benchmarks.machine import cpu_s, pin
from benchmarks.recorder import Recorder
from benchmarks.stack import OTHER_CORE, fleet_url, node, serve, serving, wait_for

SIDES = {
    "one gateway": (1, CLIENTS),
    "two gateways": (2, CLIENTS),
    "two gateways, twice the clients": (2, 2 * CLIENTS),
}
KEYS = dict(zip(SIDES, ("one", "two", "two_with_twice_the_clients"), strict=True))
MEANING = (
    "All processes share the machine's cores, none is pinned, and the clients are split over the "
    "gateways: with two cores a second gateway takes its time from PostgreSQL, the node and the "
    "load, so this tells what sharing costs a request, not how gateways scale."
)


def two_gateways(run: Run) -> None:
    """The same load on one of them and on both, in turns."""
    with _gateways(run) as gateways:
        pin(0)
        work = asked.chat(run.made.key)
        for count, clients in SIDES.values():
            _measure(gateways[:count], work, clients=clients, seconds=run.plan.warm_s)
        names = list(SIDES)
        for number in range(run.plan.passes):
            first = number % len(names)
            for name in (*names[first:], *names[:first]):
                count, clients = SIDES[name]
                tally, used_s = _measure(
                    gateways[:count], work, clients=clients, seconds=run.plan.seconds
                )
                p99_ms = percentile(tally.total_s, 0.99) * 1e3
                run.recorder.keep(name, {**run.cost(tally, used_s), "p99_ms": p99_ms})
                run.errors += tally.errors
        pin(0, OTHER_CORE)


@contextlib.contextmanager
def _gateways(run: Run) -> Iterator[list[Server]]:
    """Two, with one node between them."""
    with (
        serve(GATEWAY_APP, pinned=False) as one,
        serve(GATEWAY_APP, pinned=False) as other,
        node(run.made, one[0], "--engine", "echo", "--gateway", fleet_url(other[0])) as pid,
    ):
        wait_for(lambda: serving(other[0]), "the node to serve the other gateway, too")
        pin(pid)
        yield [Server(*one), Server(*other)]


def _measure(
    gateways: Sequence[Server], work: Work, *, clients: int, seconds: float
) -> tuple[Tally, float]:
    """What all clients have seen, and the CPU seconds of these gateways."""

    async def load() -> list[Tally]:
        share = clients // len(gateways)
        loops = [closed_loop(each.port, work, clients=share, seconds=seconds) for each in gateways]
        return await asyncio.gather(*loops)

    before_s = sum(cpu_s(each.pid) for each in gateways)
    tallies = asyncio.run(load())
    used_s = sum(cpu_s(each.pid) for each in gateways) - before_s
    tally = Tally()
    for each in tallies:
        tally.answers += each.answers
        tally.errors += each.errors
        tally.total_s += each.total_s
    return tally, used_s


def figures(recorder: Recorder) -> dict[str, Any]:
    """Of each side: requests a second, CPU of the gateways for each, and the p99."""
    return {KEYS[name]: recorder.medians(name) for name in SIDES} | {"meaning": MEANING}
