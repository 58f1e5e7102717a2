"""`make bench-batch [LINES=10000]`: interactive requests beside a batch, and without one, in turns.

One node that runs the shipped model. Interactive streams come at a fixed pace, drawn once for all
runs; in every second run a part of the batch's lines runs beside them. Afterwards each line is
looked for in the files and on the ledger. Prints a table; the last line is JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import sys
import time
from collections import Counter
from typing import Any, Literal

import msgspec
from django.utils.module_loading import import_string
from openai import AsyncOpenAI

from benchmarks.load import Connection, Tally, percentile, request_bytes
from benchmarks.machine import describe
from benchmarks.recorder import Recorder
from benchmarks.stack import Stack, node, serve, stack

APP = "controlplane.asgi:application"
LINES = 10_000
PAIRS = 3
SECONDS = 10.0
PER_S = 8
PROMPT_TOKENS = 64
OUTPUT_TOKENS = 16
LINE_TOKENS = 8
BATCH_S_MAX = 3_600.0
POLL_S = 0.5
MODEL = "sluice-5m"
PATH: Literal["/v1/completions"] = "/v1/completions"
OVER = ("completed", "failed", "expired", "cancelled")


async def interactive(port: int, key: str, seed: int, seconds: float) -> Tally:
    """Streams at a pace of their own for so long; nobody waits for another."""
    draw, tally = random.Random(seed), Tally()

    async def one() -> None:
        connection = Connection(port)
        body = {"model": MODEL, "stream": True, "max_tokens": OUTPUT_TOKENS, "prompt": prompt(draw)}
        try:
            await connection.ask(request_bytes(PATH, key, body), tally)
        finally:
            connection.close()

    tasks: list[asyncio.Task[None]] = []
    until = time.monotonic() + seconds
    while time.monotonic() < until and len(tasks) < PER_S * seconds * 2:
        tasks.append(asyncio.create_task(one()))
        await asyncio.sleep(draw.expovariate(PER_S))
    await asyncio.gather(*tasks)
    return tally


def prompt(draw: random.Random) -> list[int]:
    return [draw.randrange(300, 2_000) for _ in range(PROMPT_TOKENS)]


def file_of(lines: int, seed: int) -> bytes:
    draw = random.Random(seed)
    body = {"model": MODEL, "max_tokens": LINE_TOKENS}
    return b"\n".join(
        msgspec.json.encode(
            {
                "custom_id": f"{seed}-{number}",
                "method": "POST",
                "url": PATH,
                "body": {**body, "prompt": prompt(draw)},
            }
        )
        for number in range(lines)
    )


async def begin(client: AsyncOpenAI, lines: int, seed: int) -> str:
    """A batch whose lines run already."""
    file = await client.files.create(file=("lines.jsonl", file_of(lines, seed)), purpose="batch")
    batch = await client.batches.create(
        input_file_id=file.id, endpoint=PATH, completion_window="24h"
    )
    while not (batch.request_counts and batch.request_counts.completed):
        await asyncio.sleep(POLL_S / 10)
        batch = await client.batches.retrieve(batch.id)
    return batch.id


async def results(client: AsyncOpenAI, name: str) -> list[dict[str, Any]]:
    """All results of a batch, once it is over."""
    async with asyncio.timeout(BATCH_S_MAX):
        batch = await client.batches.retrieve(name)
        while batch.status not in OVER:
            await asyncio.sleep(POLL_S)
            batch = await client.batches.retrieve(name)
    found: list[dict[str, Any]] = []
    for file in filter(None, (batch.output_file_id, batch.error_file_id)):
        text = (await client.files.content(file)).text
        found += [msgspec.json.decode(line) for line in text.splitlines()]
    return found


async def run(
    made: Stack, port: int, options: argparse.Namespace, recorder: Recorder
) -> dict[str, Any]:
    """Pairs of runs, without a batch and beside one; then the count of all lines."""
    sides: dict[str, list[float]] = {"alone": [], "beside": []}
    found: list[dict[str, Any]] = []
    each, errors = max(1, options.lines // PAIRS), 0
    await interactive(port, made.key, 0, options.seconds / 2)
    base = f"http://127.0.0.1:{port}/v1"
    async with AsyncOpenAI(base_url=base, api_key=made.key, timeout=60) as client:
        began = time.monotonic()
        for pair in range(1, PAIRS + 1):
            for side in ("alone", "beside"):
                name = await begin(client, each, pair) if side == "beside" else ""
                tally = await interactive(port, made.key, pair, options.seconds)
                errors += tally.errors
                p95_ms = percentile(tally.first_s, 0.95) * 1e3
                sides[side].append(p95_ms)
                recorder.keep(side, {"ttft_p95_ms": round(p95_ms, 2)})
                print(f"{side:8} pair {pair}: TTFT p95 {p95_ms:.1f} ms, {tally.answers} answers")
                if name:
                    found += await results(client, name)
        seconds = time.monotonic() - began
    named = Counter(line["custom_id"] for line in found)
    charges = import_string("tests.support.money.rows")(
        "SELECT count(*) FROM transfers WHERE kind = 'settle' AND request = ANY (%s::uuid[])",
        [line["response"]["request_id"].removeprefix("req_") for line in found if line["response"]],
    )[0][0]
    rises = [beside / alone for alone, beside in zip(*sides.values(), strict=True)]
    return {
        "p95_ttft_rise": round(statistics.median(rises) - 1, 4),
        "p95_ttft_alone_ms": round(statistics.median(sides["alone"]), 2),
        "p95_ttft_beside_ms": round(statistics.median(sides["beside"]), 2),
        "lines": each * PAIRS,
        "lost": each * PAIRS - len(named),
        "doubled": sum(count - 1 for count in named.values()),
        "uncharged": sum(1 for line in found if line["response"]) - int(charges),
        "lines_failed": sum(
            not line["response"] or line["response"]["status_code"] != 200 for line in found
        ),
        "interactive_errors": errors,
        "lines_per_s": round(each * PAIRS / seconds, 1),
    }


def main() -> int:
    """Print the table and, last, the JSON line; 1 where a line was lost or doubled."""
    parser = argparse.ArgumentParser(prog="bench-batch", description=__doc__)
    parser.add_argument("--lines", type=int, default=LINES, help="of the batches, in all")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each of six runs")
    options = parser.parse_args()
    print(f"bench-batch: {describe()}")
    recorder = Recorder("batch", lines=options.lines, seconds=options.seconds)
    with (
        stack() as made,
        serve(APP, pinned=False) as (port, _),
        node(made, port, "--engine", "compact", "--threads", "1"),
    ):
        figures = asyncio.run(run(made, port, options, recorder))
    recorder.finish(figures)
    return 1 if figures["lost"] or figures["doubled"] or figures["uncharged"] else 0


if __name__ == "__main__":
    sys.exit(main())
