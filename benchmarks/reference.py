"""`make bench-reference`: agents on the shipped model, through the whole product on two cores.

Each agent sends 1,025 prompt tokens (200 of them shared by all) and takes 150 tokens back. Widths
1, 8 and 50 are all at once; figures are those of the clients, pooled over all requests.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any

from tokenizers import Tokenizer

from benchmarks.load import Connection, Tally, percentile, request_bytes
from benchmarks.machine import describe, rss_mib
from benchmarks.recorder import Recorder
from benchmarks.stack import Stack, node, serve, stack
from benchmarks.workloads import reference_prompts
from controlplane.insights.load.workloads import OUTPUT_TOKENS

WIDTHS = (1, 8, 50)
WARM_WIDTH = 50
PASSES = 3
RUN_S_MAX = 300.0
END_TOKEN = "<|end|>"


async def agents(
    port: int, key: str, tokens: list[list[int]], *, end_token: int
) -> tuple[Tally, float]:
    """All prompts at once; the tally and the wall time."""
    tally = Tally()

    async def agent(prompt: list[int]) -> None:
        connection = Connection(port)
        body = {
            "model": "sluice-5m",
            "prompt": prompt,
            "max_tokens": OUTPUT_TOKENS,
            "temperature": 0,
            "logit_bias": {str(end_token): -100},
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        try:
            await connection.ask(request_bytes("/v1/completions", key, body), tally)
        finally:
            connection.close()

    began = time.perf_counter()
    async with asyncio.timeout(RUN_S_MAX):
        await asyncio.gather(*(agent(prompt) for prompt in tokens))
    return tally, time.perf_counter() - began


def figures(tally: Tally, wall_s: float) -> dict[str, float | int]:
    """What one width gave."""
    made: dict[str, float | int] = {"out_tok_s": round(tally.output_tokens / wall_s, 1)}
    for name, values in (("ttft", tally.first_s), ("itl", tally.gap_s)):
        for share in (50, 95, 99):
            made[f"{name}_p{share}_ms"] = round(percentile(values, share / 100) * 1e3, 2)
    made["errors"] = tally.errors
    return made


def run(made: Stack, recorder: Recorder) -> dict[str, Any]:
    """All widths on one node, in turns after a warm-up: medians of the passes."""
    tokenizer = Tokenizer.from_file(str(made.model / "tokenizer.json"))
    vocabulary, end = tokenizer.get_vocab_size(), tokenizer.token_to_id(END_TOKEN)
    assert end is not None, "the shipped tokenizer has no end token"
    widths: dict[str, dict[str, Any]] = {}
    with (
        serve("controlplane.asgi:application", pinned=False) as (port, gateway_pid),
        node(made, port, "--engine", "compact") as node_pid,
    ):
        idle = {"gateway": rss_mib(gateway_pid), "node": rss_mib(node_pid)}
        asyncio.run(
            agents(port, made.key, reference_prompts(vocabulary, WARM_WIDTH, run=0), end_token=end)
        )
        for number in range(PASSES):
            for width in WIDTHS:
                batch = reference_prompts(vocabulary, width, run=f"{number} {width}")
                tally, wall_s = asyncio.run(agents(port, made.key, batch, end_token=end))
                recorder.keep(str(width), figures(tally, wall_s))
    for width in WIDTHS:
        row = recorder.medians(str(width), 2)
        row["errors"] = sum(each["errors"] for each in recorder.passes[str(width)])
        widths[str(width)] = row
    return {
        "model": "sluice-5m",
        "engine": "compact",
        "widths": widths,
        "rss_mib_idle": {name: round(mib, 1) for name, mib in idle.items()},
    }


def main() -> int:
    """Print the table and, last, the JSON line; 1 when a request failed."""
    print(f"bench-reference: {describe()}")
    recorder = Recorder("reference", widths=WIDTHS, passes=PASSES)
    with stack() as made:
        result = run(made, recorder)
    names = list(recorder.passes[str(WIDTHS[0])][0])
    print("".join(f"{name:>14}" for name in ["width", *names]))
    for width, row in result["widths"].items():
        print(f"{width:>14}" + "".join(f"{row[name]:>14}" for name in names))
    recorder.finish(result)
    return 1 if any(row["errors"] for row in result["widths"].values()) else 0


if __name__ == "__main__":
    sys.exit(main())
