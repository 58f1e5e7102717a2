"""Which runs `make bench-fleet` makes, and the figures that come of them."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace

from benchmarks.fleet.bars import Table
from benchmarks.fleet.fleet import Run
from benchmarks.fleet.journal import Journal
from benchmarks.fleet.policies.registry import OURS, POLICIES
from benchmarks.fleet.task import Cell, Task, pooled, simulate
from benchmarks.fleet.workloads import WORKLOADS

WORKING_SETS = (0.5, 0.75, 1.2)
SEEDS = 5
# Load 1.0 was measured at 0.75; with more to keep a fleet sustains less, and beyond that all
# policies collapse and nothing is compared.
LARGE_SET_SHARE = 0.7 / 0.85
# The policies that stay near ours at 8 nodes; the others have collapsed long before.
CLOSE = (OURS, "sglang", "dynamo", "llmd")
GATEWAYS = 4
PROGRESS_EVERY = 50


@dataclass(frozen=True, slots=True)
class Plan:
    """A block of the campaign: all cells by all policies by all seeds."""

    name: str
    cells: tuple[Cell, ...]
    policies: tuple[str, ...]
    seeds: int
    gateways: int = 1

    def tasks(self) -> list[Task]:
        """All runs, cell by cell."""
        return [
            Task(cell, policy, seed, self.gateways)
            for cell in self.cells
            for policy in self.policies
            for seed in range(1, self.seeds + 1)
        ]


def cells(workloads: Iterable[str], working_sets: Sequence[float], like: Cell) -> tuple[Cell, ...]:
    """Every workload with every working set; `mixed` has none, so it comes once."""
    return tuple(
        replace(
            like,
            workload=workload,
            working_set=working_set,
            load=round(like.load * (LARGE_SET_SHARE if working_set > 1 else 1.0), 3),
        )
        for workload in workloads
        for working_set in (working_sets if workload != "mixed" else working_sets[:1])
    )


def plans(*, full: bool) -> list[Plan]:
    """The blocks. The short campaign has 8 nodes throughout, and 64 in one seed of a few cells."""
    like = Cell("shared", 0.75)
    large = replace(like, nodes=64, span_s=20.0)
    huge = replace(like, nodes=1000, warm_s=20.0, span_s=10.0)
    if full:
        like = replace(like, warm_s=60.0, span_s=100.0)
        large = replace(like, nodes=64)
    sharing = ("shared", "chat", "agents", "burst")
    eight = cells(WORKLOADS, WORKING_SETS, like)
    if full:
        return [
            Plan("nodes_8", eight, tuple(POLICIES), SEEDS),
            Plan("nodes_8_full_load", cells(WORKLOADS, WORKING_SETS, replace(like, load=1.0)),
                 tuple(POLICIES), SEEDS),
            Plan("gateways_4", cells(sharing, (0.75,), like), (OURS,), SEEDS, GATEWAYS),
            Plan("nodes_64", cells(WORKLOADS, WORKING_SETS, large), CLOSE, SEEDS),
            Plan("nodes_1000", cells(("burst",), (0.75,), huge), (OURS, "llmd"), 1),
        ]  # fmt: skip
    return [
        Plan("nodes_8", eight, tuple(POLICIES), SEEDS),
        Plan("gateways_4", cells(sharing, (0.75,), like), (OURS,), SEEDS, GATEWAYS),
        Plan("nodes_64", cells(sharing, (0.75,), large), CLOSE, 1),
    ]


def run_all(tasks: Sequence[Task], journal: Journal, *, workers: int) -> None:
    """Run what the journal lacks."""
    missing = [task for task in tasks if task.key not in journal.runs]
    began = time.monotonic()
    with ProcessPoolExecutor(workers) as pool:
        coming = {pool.submit(simulate, task): task for task in missing}
        for done, future in enumerate(as_completed(coming), 1):
            journal.keep(coming[future].key, future.result())
            if done % PROGRESS_EVERY == 0 or done == len(missing):
                spent = time.monotonic() - began
                sys.stderr.write(f"{spent:6.0f} s  {done} of {len(missing)} runs\n")


def tabled(plan: Plan, runs: dict[str, Run]) -> Table:
    """The figures of a block, over all seeds together."""
    table: Table = {}
    for cell in plan.cells:
        table[cell.name] = {}
        for policy in plan.policies:
            seeds = range(1, plan.seeds + 1)
            run = pooled(runs[Task(cell, policy, seed, plan.gateways).key] for seed in seeds)
            table[cell.name][policy] = {
                "hit_rate": round(run.hit_rate, 4),
                "ttft_p50_ms": round(run.ttft_ms(50), 1),
                "ttft_p95_ms": round(run.ttft_ms(95), 1),
            }
    return table
