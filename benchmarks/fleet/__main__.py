"""`make bench-fleet`: the real routing code over virtual nodes, beside eight other policies.

Simulated: the nodes (a roofline model) and time. Real: the prefix index, the accounts, the fleet's
means, the choice and the queue. Blocks hold 64 tokens instead of 16; all else is as on the wire.
With `--nodes` it measures instead what connected nodes cost a real gateway process.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from benchmarks.fleet.bars import Table, leads, means, misses
from benchmarks.fleet.campaign import Plan, plans, run_all, tabled
from benchmarks.fleet.decision import decision_us
from benchmarks.fleet.journal import Journal, journal_path
from benchmarks.fleet.policies.registry import OURS
from benchmarks.fleet.sockets import KV_BLOCKS, STEPS_S, measure
from benchmarks.fleet.workloads import WORKLOADS
from benchmarks.machine import describe
from benchmarks.recorder import Recorder

DECISION_NODES = (64, 1000)
CONNECTED_NODES = (64, 256)


def main() -> int:
    """Print the tables and, last, the JSON line."""
    options = arguments()
    print(f"bench-fleet: {describe()}")
    if options.nodes:
        return connect(options.nodes, options.steps_s)
    recorder = Recorder("fleet", full=options.full, workers=options.workers)
    timed = {str(nodes): decision_us(nodes) for nodes in DECISION_NODES}
    every = plans(full=options.full)
    journal = Journal(options.journal)
    run_all([task for plan in every for task in plan.tasks()], journal, workers=options.workers)
    tables = {plan.name: tabled(plan, journal.runs) for plan in every}
    for plan in every:
        show(plan, tables[plan.name])
    figures = summary(every, tables)
    figures["decision_us"] = {nodes: each["p50"] for nodes, each in timed.items()}
    figures["decision_p99_us"] = {nodes: each["p99"] for nodes, each in timed.items()}
    print(f"decision, microseconds: {timed}")
    recorder.passes = {
        key: [{"hit_rate": round(run.hit_rate, 4), "ttft_p95_ms": round(run.ttft_ms(95), 1)}]
        for key, run in journal.runs.items()
    }
    recorder.finish(figures)
    journal.forget()
    return 0


def connect(nodes: int, steps_s: float) -> int:
    """What one gateway process needs for so many nodes on real sockets, and for fewer."""
    recorder = Recorder("fleet-links", nodes=nodes, steps_s=steps_s, kv_blocks=KV_BLOCKS)
    counts = [each for each in CONNECTED_NODES if each < nodes]
    links = measure([*counts, nodes], steps_s=steps_s)
    for count, found in links.items():
        print(f"{count:>5} nodes: {found}")
    recorder.finish({"links": links})
    return 0


def arguments() -> argparse.Namespace:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(prog="bench-fleet", description=__doc__)
    parser.add_argument("--full", action="store_true", help="all cells at 64 nodes, 1.0 load")
    parser.add_argument("--nodes", type=int, default=0, help="only connect so many to a gateway")
    parser.add_argument(
        "--steps-s", type=float, default=STEPS_S, help="most frames of load of each"
    )
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--journal", type=Path, default=journal_path())
    return parser.parse_args()


def summary(every: list[Plan], tables: dict[str, Table]) -> dict[str, Any]:
    """What the last line holds, but for the decision times."""
    figures: dict[str, Any] = {"workloads": tables["nodes_8"]}
    for name, table in tables.items():
        if name == "gateways_4":
            ratios = {
                cell: round(rows[OURS]["ttft_p95_ms"] / one, 3)
                for cell, rows in table.items()
                if (one := tables["nodes_8"][cell][OURS]["ttft_p95_ms"])
            }
            figures["gateways_4_p95_ratio"] = max(ratios.values())
            figures["gateways_4_p95_ratios"] = ratios
            continue
        figures[f"bars_{name}"] = {"misses": misses(table), "leads_geomean": leads(table)}
        if name != "nodes_8":
            figures[name] = table
    figures["held_out"] = [name for name, each in WORKLOADS.items() if each.held_out]
    figures["seeds"] = {plan.name: plan.seeds for plan in every}
    figures["load"] = {
        plan.name: {str(cell.working_set): cell.load for cell in plan.cells} for plan in every
    }
    return figures


def show(plan: Plan, table: Table) -> None:
    """Hit rate and p95 of the first token in ms, by cell and policy."""
    loads = "/".join(dict.fromkeys(f"{cell.load:g}" for cell in plan.cells))
    print(f"\n{plan.name}: load {loads}, {plan.seeds} seeds; hit rate / TTFT p95 ms")
    print(f"{'':16}" + "".join(f"{policy:>16}" for policy in plan.policies))
    rows = dict(table)
    if len(plan.policies) > 1:
        rows["geometric mean"] = means(table)
    for name, row in rows.items():
        marks = [f"{each['hit_rate']:.3f} / {each['ttft_p95_ms']:.0f}" for each in row.values()]
        print(f"{name:16}" + "".join(f"{mark:>16}" for mark in marks))
    if len(plan.policies) > 1:
        for miss in misses(table):
            print(f"  bar missed: {miss}")
        print(f"  best in both geometric means: {'yes' if leads(table) else 'no'}")


if __name__ == "__main__":
    sys.exit(main())
