"""What our policy has to reach beside the others, and where it does not."""

from __future__ import annotations

from math import exp, log

from benchmarks.fleet.policies.registry import OURS

Row = dict[str, float]
# Cell name -> policy -> its figures.
Table = dict[str, dict[str, Row]]

P95_RATIO_MAX = 1.05
HIT_RATIO_MIN = 0.99
# Beyond this every policy has collapsed and noise decides.
P95_MS_JUDGED = 2000.0


def misses(table: Table) -> list[str]:
    """Where another policy, not itself beyond 2 s, is ahead of ours by more than the margin."""
    found = []
    for cell, rows in table.items():
        ours = rows[OURS]
        for policy, row in rows.items():
            if policy == OURS or row["ttft_p95_ms"] >= P95_MS_JUDGED:
                continue
            p95 = ours["ttft_p95_ms"] / row["ttft_p95_ms"]
            if p95 > P95_RATIO_MAX:
                found.append(f"{cell}: p95 is {p95:.3f} x that of {policy}")
            if ours["hit_rate"] < HIT_RATIO_MIN * row["hit_rate"]:
                hit = ours["hit_rate"] / row["hit_rate"]
                found.append(f"{cell}: hit rate is {hit:.3f} x that of {policy}")
    return found


def means(table: Table) -> dict[str, Row]:
    """Geometric means over the cells by policy; hit rates where something can be hit."""
    policies = next(iter(table.values())).keys()
    return {
        policy: {
            "hit_rate": geometric(
                [rows[policy]["hit_rate"] for rows in table.values() if rows[OURS]["hit_rate"]]
            ),
            "ttft_p95_ms": geometric([rows[policy]["ttft_p95_ms"] for rows in table.values()]),
        }
        for policy in policies
    }


def leads(table: Table) -> bool:
    """Ours is strictly better than every other policy in both geometric means."""
    every = means(table)
    ours = every.pop(OURS)
    return all(
        ours["hit_rate"] > row["hit_rate"] and ours["ttft_p95_ms"] < row["ttft_p95_ms"]
        for row in every.values()
    )


def geometric(values: list[float]) -> float:
    """The geometric mean; 0 of none, or when a value is 0."""
    if not values or min(values) <= 0:
        return 0.0
    return exp(sum(map(log, values)) / len(values))
