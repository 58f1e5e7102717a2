"""Passes of load on servers that take turns, so that a host that drifts changes all of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from benchmarks import load
from benchmarks.load import Tally, closed_loop, percentile
from benchmarks.machine import core_busy_s, cpu_s
from benchmarks.recorder import Recorder
from benchmarks.stack import GATEWAY_CORE, Stack

CLIENTS = 16


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How much is measured; `paced_tokens` is the length of each paced stream."""

    passes: int
    seconds: float
    warm_s: float
    paced_tokens: int


FULL = Plan(passes=5, seconds=2.0, warm_s=1.0, paced_tokens=400)
# For the guard: an answer within a minute, of which a median is still told.
QUICK = Plan(passes=3, seconds=0.8, warm_s=0.5, paced_tokens=150)


class Server(NamedTuple):
    """One that is measured."""

    port: int
    pid: int


class Side(NamedTuple):
    """A load on a server, and the name that its passes are kept under."""

    name: str
    server: Server
    work: load.Work


Figure = Callable[[Tally, float], dict[str, float]]


@dataclass
class Run:
    """One measurement: servers to measure, where passes are kept, and requests that failed.

    `foreign_s` of `wall_s` the core of the measured servers was taken by something else.
    """

    made: Stack
    recorder: Recorder
    plan: Plan
    errors: int = 0
    foreign_s: float = 0.0
    wall_s: float = 0.0

    @property
    def foreign_share(self) -> float:
        """How much of that core others had while passes ran."""
        return self.foreign_s / self.wall_s

    def in_turns(self, sides: Sequence[Side], figure: Figure, *, clients: int = CLIENTS) -> None:
        """Every side in every pass, the first of them last the next time."""
        for side in sides:
            one_pass(side, self.plan.warm_s, clients=clients)
        for number in range(self.plan.passes):
            first = number % len(sides)
            for side in (*sides[first:], *sides[:first]):
                self._pass(side, figure, clients=clients)

    def _pass(self, side: Side, figure: Figure, *, clients: int) -> None:
        began_s, busy_s = time.monotonic(), core_busy_s(GATEWAY_CORE)
        tally, used_s = one_pass(side, self.plan.seconds, clients=clients)
        self.foreign_s += max(0.0, core_busy_s(GATEWAY_CORE) - busy_s - used_s)
        self.wall_s += time.monotonic() - began_s
        self.recorder.keep(side.name, figure(tally, used_s))
        self.errors += tally.errors

    def cost(self, tally: Tally, used_s: float) -> dict[str, float]:
        """CPU milliseconds for each answer, and answers in a second."""
        cpu_ms = used_s * 1e3 / max(1, tally.answers)
        return {"cpu_ms": cpu_ms, "per_s": tally.answers / self.plan.seconds}


def one_pass(side: Side, seconds: float, *, clients: int) -> tuple[Tally, float]:
    """The tally and the server's CPU seconds in it."""
    before_s = cpu_s(side.server.pid)
    tally = asyncio.run(closed_loop(side.server.port, side.work, clients=clients, seconds=seconds))
    return tally, cpu_s(side.server.pid) - before_s


def latency(tally: Tally, used_s: float) -> dict[str, float]:
    """Milliseconds to the end, and to the first token of a stream."""
    return {
        "p50_ms": percentile(tally.total_s, 0.5) * 1e3,
        "ttft_ms": percentile(tally.first_s, 0.5) * 1e3,
    }


def token_cost(tally: Tally, used_s: float) -> dict[str, float]:
    """CPU microseconds for each token, and the p99 of the gaps between tokens in milliseconds."""
    return {
        "us": used_s * 1e6 / max(1, tally.tokens),
        "gap_p99_ms": percentile(tally.gap_s, 0.99) * 1e3,
    }
