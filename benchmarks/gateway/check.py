"""`make bench-check`: whether the gateway costs more than the last kept results say.

A short measurement with the control in turns, held against the file of the same kind of CPU. A
ratio that grew by more than a tenth is measured again, in servers that are started anew. It fails
where none of its medians is within the bound, and two of them or more come from a machine that had
nothing else to do. With `--if-changed`, as `make test` calls it, it measures only where files of
the hot path differ from the commit of that file.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from benchmarks.gateway.figures import GUARDED, guarded_ratios
from benchmarks.gateway.groups import COMPARED as GROUPS
from benchmarks.gateway.kept import (
    GROWTH_MAX,
    Cpu,
    Grown,
    changed_since,
    grown,
    last_kept,
    reason_to_skip,
)
from benchmarks.gateway.turns import QUICK, Run
from benchmarks.machine import cpu_flags, cpu_model, describe, pin
from benchmarks.recorder import Recorder, Result
from benchmarks.stack import OTHER_CORE, Stack, stack

IF_CHANGED = "--if-changed"
TRIES_MAX = 3
PROOFS_MIN = 2
# Of the time of the core that the measured servers have to themselves.
FOREIGN_MAX = 0.10
# No repeat begins later, so that all of it ends within two minutes.
REPEAT_S_MAX = 80.0


class Measured(NamedTuple):
    """Ratios of one measurement; `disturbed` where something else ran on the servers' core."""

    ratios: dict[str, float]
    disturbed: bool


def measure(made: Stack, names: set[str]) -> Measured:
    """These groups, each in servers of its own; raises RuntimeError where requests failed."""
    run = Run(made, Recorder("gateway"), QUICK)
    for name, group in GROUPS.items():
        if name in names:
            group(run)
    if run.errors:
        raise RuntimeError(f"{run.errors} requests failed while the gateway was measured")
    foreign = run.foreign_share
    print(f"bench-check: {foreign:.0%} of the servers' core was taken by others", flush=True)
    return Measured(guarded_ratios(run.recorder.passes), foreign > FOREIGN_MAX)


def check(made: Stack, before: Mapping[str, float], *, began_s: float) -> list[Measured]:
    """Measurements until nothing is over the bound, or there are enough to tell."""
    measured = [measure(made, {row.group for row in GUARDED})]
    while len(measured) < TRIES_MAX and time.monotonic() - began_s < REPEAT_S_MAX:
        over = {each.name for each in grown(before, least(measured))}
        if not over:
            break
        print(f"bench-check: measured again: {', '.join(sorted(over))}", flush=True)
        measured.append(measure(made, {row.group for row in GUARDED if row.name in over}))
    return measured


def least(measured: Sequence[Measured]) -> dict[str, float]:
    """Of each row the least of its medians: load from elsewhere only ever adds."""
    found: dict[str, float] = {}
    for one in measured:
        found |= {name: min(ratio, found.get(name, ratio)) for name, ratio in one.ratios.items()}
    return found


def proven(over: Sequence[Grown], measured: Sequence[Measured]) -> list[Grown]:
    """Those that enough measurements tell which nothing has disturbed."""
    calm = [name for one in measured if not one.disturbed for name in one.ratios]
    return [each for each in over if calm.count(each.name) >= PROOFS_MIN]


def tell(before: Mapping[str, float], now: Mapping[str, float]) -> None:
    """Row by row: the most of the kept passes, and the least of the medians now."""
    print(f"{'ratio to the control':24}{'kept':>10}{'now':>10}")
    for name, ratio in now.items():
        kept = f"{before[name]:.2f}" if name in before else "-"
        print(f"  {name:22}{kept:>10}{ratio:>10.2f}")


def verdict(kept: Result | None, over: Sequence[Grown], failed: Sequence[Grown]) -> str:
    """The last line."""
    if kept is None:
        return "nothing to compare with: no results of bench-gateway are kept for this kind of CPU"
    since = kept.commit[:10]
    if failed:
        return f"FAILED: since {since} {'; '.join(map(str, failed))}"
    if over:
        told = "; ".join(map(str, over))
        return f"this machine has too much else to do to tell whether since {since} {told}"
    return f"no ratio is more than {GROWTH_MAX:.2f} x that of {since}"


def main() -> int:
    """1 where a ratio has grown for certain, else 0."""
    began_s = time.monotonic()
    cpu = Cpu(cpu_model(), tuple(cpu_flags()))
    kept = last_kept(cpu)
    if IF_CHANGED in sys.argv:
        skip = reason_to_skip(kept, changed_since(kept.commit) if kept else ())
        if skip:
            print(f"bench-check: nothing is measured: {skip}.")
            return 0
    pin(0, OTHER_CORE)
    print(f"bench-check: {cpu.name} {' '.join(cpu.flags)}; {describe()}", flush=True)
    # Of the dearest pass, so that a machine whose passes differ is not taken for code.
    before = guarded_ratios(kept.passes, max) if kept else {}
    with stack() as made:
        measured = check(made, before, began_s=began_s)
    now = least(measured)
    tell(before, now)
    over = grown(before, now)
    failed = proven(over, measured)
    took_s = time.monotonic() - began_s
    print(f"bench-check: {verdict(kept, over, failed)} ({took_s:.0f} s).", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
