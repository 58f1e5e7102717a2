"""Rounds of faults, the kind that is furthest behind first; what they counted is kept in a file."""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.faults.cancelling import measure_cancels
from benchmarks.faults.ground import Count, Ground, running_ground
from benchmarks.faults.kinds import KINDS
from benchmarks.kept import Kept, load, save
from benchmarks.recorder import Recorder
from tests.support.servers import Servers, start_servers

SEED = 20261122
PERCENTILE = 0.99
CANCELS = 200


class State(Kept, kw_only=True):
    """What all runs have counted so far; times in milliseconds."""

    rounds: int = 0
    counts: dict[str, Count] = msgspec.field(default_factory=dict)
    cancel_ms: list[float] = msgspec.field(default_factory=list)
    cancel_bound_ms: list[float] = msgspec.field(default_factory=list)


def run(recorder: Recorder, faults: int, until_s: float, path: Path) -> dict[str, Any]:
    """Go on until there are so many faults of each kind, or until the clock says so."""
    state = load(path, State)
    servers = start_servers()
    try:
        rounds(servers, state, faults, until_s, path)
        if len(state.cancel_ms) < CANCELS:
            asyncio.run(cancels(state))
            save(state, path)
    finally:
        servers.stop()
    recorder.passes["cancels"] = [
        {"freed_ms": freed_ms, "bound_ms": bound_ms}
        for freed_ms, bound_ms in zip(state.cancel_ms, state.cancel_bound_ms, strict=True)
    ]
    show(state)
    return figures(state, faults)


def rounds(servers: Servers, state: State, faults: int, until_s: float, path: Path) -> None:
    """All faults on one stack, saved after each round."""
    if behind(state, faults) is None:
        return
    with running_ground(servers, seed=SEED + state.rounds) as ground:
        while (kind := behind(state, faults)) is not None and time.monotonic() < until_s:
            count = asyncio.run(one_round(ground, kind))
            state.counts.setdefault(kind, Count()).add(count)
            state.rounds += 1
            for what, number in asdict(count).items():
                if what != "tried":
                    state.lose(f"{kind}: {what}", number, [str(note) for note in ground.notes])
            save(state, path)
            print(f"{kind:32} {state.counts[kind].tried:5}/{faults}", *ground.notes, sep="\n  ")
            ground.notes.clear()


async def one_round(ground: Ground, kind: str) -> Count:
    """One round of a kind; fails where nothing was broken, so that nothing was tried."""
    async with ground.round():
        count = await KINDS[kind](ground)
    assert count.tried, f"{kind}: the round broke nothing"
    return count


def behind(state: State, faults: int) -> str | None:
    """The kind with the fewest faults; None when each has had enough."""
    tried = {kind: state.counts.get(kind, Count()).tried for kind in KINDS}
    kind = min(tried, key=tried.__getitem__)
    return kind if tried[kind] < faults else None


async def cancels(state: State) -> None:
    """From a client's leaving to its blocks being free, on real compact nodes."""
    async for freed_ms, bound_ms in measure_cancels(CANCELS - len(state.cancel_ms)):
        state.cancel_ms.append(freed_ms)
        state.cancel_bound_ms.append(bound_ms)


def figures(state: State, faults: int) -> dict[str, Any]:
    """The last line."""
    late = cancels_late(state)
    clean = all(count.clean for count in state.counts.values())
    return {
        "faults": {kind: asdict(state.counts.get(kind, Count())) for kind in KINDS},
        "aimed_at": faults,
        **cancel_p99(state),
        "cancels": len(state.cancel_ms),
        "cancels_later_than_two_steps_and_20_ms": late,
        "losses": state.told(),
        "seed": SEED,
        "clean": clean and late <= (1 - PERCENTILE) * len(state.cancel_ms),
    }


def cancel_p99(state: State) -> dict[str, Any]:
    """Nearest rank, where any were measured."""
    key = "cancel_to_free_p99_ms"
    if not state.cancel_ms:
        return {key: None, f"why_{key}": "no cancel was measured"}
    return {key: percentile(state.cancel_ms)}


def cancels_late(state: State) -> int:
    """How many took longer than their own bound, which is that of their node at their moment."""
    return sum(
        freed_ms > bound_ms
        for freed_ms, bound_ms in zip(state.cancel_ms, state.cancel_bound_ms, strict=True)
    )


def show(state: State) -> None:
    """A table for people."""
    print(f"\n{'fault':34}" + "".join(f"{name:>9}" for name in asdict(Count())))
    for kind in KINDS:
        count = asdict(state.counts.get(kind, Count()))
        print(f"{kind:34}" + "".join(f"{value:9}" for value in count.values()))
    print(
        f"\nclient closes to blocks freed, p99: {percentile(state.cancel_ms):.1f} ms of"
        f" {len(state.cancel_ms)}; later than two of its steps and 20 ms: {cancels_late(state)}"
    )


def percentile(values: list[float]) -> float:
    """Nearest rank."""
    ordered = sorted(values)
    return round(ordered[min(len(ordered) - 1, int(PERCENTILE * len(ordered)))], 2)
