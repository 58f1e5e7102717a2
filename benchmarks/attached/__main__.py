"""`make bench-attached`: four `vllm serve` on this machine's cores behind four attached nodes.

The prompts of `bench-routing`: on compact nodes of as much cache, then on the servers, routed by us
and in turns. What the gateway adds is each client's time to the first text without what the server
took for it, with eight streams; bills are held against usage and the servers' own counters.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.attached.servers import COUNTERS, Attached, before_servers, servers
from benchmarks.load import percentile
from benchmarks.machine import describe, pin
from benchmarks.recorder import Recorder
from benchmarks.routing import BLOCK_TOKENS, KV_MIB, NODES, Pace, figures, run, warmed
from benchmarks.stack import GATEWAY_CORE, Stack, stack
from controlplane.insights.load.samples import LoadSample

SLUICE = "controlplane.asgi:application"
APPS = {
    "compact": SLUICE,
    "sluice": SLUICE,
    "round_robin": "benchmarks.attached.round_robin:application",
}
STREAMS = Pace(clients=8, output_tokens=96, apart_s=0.1, lengths=32)
SEEDS = (1, 2)
HIT_X_MIN = 0.9
TTFT_X_MIN = 3.0
ADDED_P99_MS_MAX = 5.0


def run_attached(made: Stack, app: str, seed: int, attached: list[Attached]) -> dict[str, Any]:
    """One policy over the servers, whose caches are empty: what clients saw; with ours also what
    the gateway added, while it streamed longer answers to known beginnings.
    """
    for each in attached:
        each.forget()
    books = import_module("benchmarks.attached.books")
    seen: list[LoadSample] = []
    options = [each.node_options for each in attached]
    with warmed(made, app, seed, options, place=before_servers) as (send, prompts):
        ledger, counters = books.counted(), _counters(attached)
        row: dict[str, Any] = figures(*asyncio.run(send(prompts, seen=seen)))
        if app == SLUICE:
            streamed: list[LoadSample] = []
            asyncio.run(send(prompts, pace=STREAMS, seen=streamed))
            added = books.added_s(streamed)
            for share in (50, 99):
                row[f"added_ttft_p{share}_ms"] = round(percentile(added, share / 100) * 1e3, 3)
            seen += streamed
        told = [_grown(ledger, books.counted()), _grown(counters, _counters(attached))]
    row["difference_nano_usd"] = books.difference_nano(seen, told)
    return row


def _counters(attached: list[Attached]) -> dict[str, float]:
    found = [each.counted() for each in attached]
    return {key: sum(each[key] for each in found) for key in COUNTERS}


def _grown(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    return {key: after[key] - count for key, count in before.items()}


def measure(recorder: Recorder) -> dict[str, Any]:
    """All sides in turns, seed by seed, and the bars."""
    with (
        tempfile.TemporaryDirectory() as folder,
        stack() as made,
        servers(Path(folder), NODES, kv_mib=KV_MIB, block_tokens=BLOCK_TOKENS) as attached,
    ):
        for seed in SEEDS:
            for side, app in APPS.items():
                if side == "compact":
                    row: dict[str, Any] = run(made, app, seed)
                else:
                    row = run_attached(made, app, seed, attached)
                recorder.keep(side, row)
                print(f"seed {seed} {side:>11} {row}", flush=True)
    return last_line(recorder)


def last_line(recorder: Recorder) -> dict[str, Any]:
    """The last line: the worst seed of each ratio, and all that was added or differs."""
    compact, ours, turns = (recorder.passes[s] for s in ("compact", "sluice", "round_robin"))
    hits = [a["hit_of_possible"] / b["hit_of_possible"] for a, b in zip(ours, compact, strict=True)]
    times = [a["ttft_p50_ms"] / b["ttft_p50_ms"] for a, b in zip(turns, ours, strict=True)]
    errors = sum(row["errors"] for row in (*compact, *ours, *turns))
    difference = sum(row["difference_nano_usd"] for row in (*ours, *turns))
    made = recorder.medians("sluice")
    added = made["added_ttft_p99_ms"]
    return {
        "servers": NODES, "streams": STREAMS.clients,
        "hit_rate_x_compact": round(min(hits), 3),
        "ttft_p50_x_round_robin": round(min(times), 2),
        "added_ttft_p50_ms": made["added_ttft_p50_ms"],
        "added_ttft_p99_ms": added,
        "added_ttft_p99_ms_spread": made["added_ttft_p99_ms_spread"],
        "difference_nano_usd": difference,
        "errors": errors,
        "met": bool(
            min(hits) >= HIT_X_MIN and min(times) >= TTFT_X_MIN and added < ADDED_P99_MS_MAX
            and not difference and not errors
        ),
    }  # fmt: skip


def main() -> int:
    """Print every run and, last, the JSON line; 1 when a bar was missed."""
    print(f"bench-attached: {describe()}")
    # With all that it starts, but the servers.
    pin(0, GATEWAY_CORE)
    recorder = Recorder("attached", seeds=SEEDS, streams=STREAMS.clients, kv_mib=KV_MIB)
    result = measure(recorder)
    recorder.finish(result)
    return 0 if result["met"] else 1


if __name__ == "__main__":
    sys.exit(main())
