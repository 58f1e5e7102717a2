"""`make bench-routing`: what routing by the prefix index is worth, against nodes drawn at random.

Four compact nodes on two cores; groups of requests that share a long beginning, in random order.
Together the beginnings fill most of the fleet's cache, so that no node can hold them all. Possible
is what an endless cache of the whole fleet would reuse: all but the first beginning of each group.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import random
import sys
import time
import urllib.request
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from django.core.management import call_command
from tokenizers import Tokenizer

from benchmarks.load import Connection, Tally, percentile, request_bytes
from benchmarks.machine import describe
from benchmarks.recorder import Recorder
from benchmarks.reference import END_TOKEN
from benchmarks.stack import Stack, node, serve, stack, wait_for
from benchmarks.workloads import VOCABULARY_FROM
from controlplane.insights.load.samples import LoadSample

APPS = {
    "sluice": "controlplane.asgi:application",
    "random": "benchmarks.random_nodes:application",
}
NODES = 4
GROUPS = 16
ROUNDS = 10
PREFIX_TOKENS = 2048
OWN_TOKENS = 64
OUTPUT_TOKENS = 8
# What native kernels compute with.
BLOCK_TOKENS = 32
# 3 KiB a token: 10,240 tokens on each node, where the groups' beginnings are 32,768.
KV_MIB = 30
CLIENTS = 4
WARM_PROMPTS = 24
WARM_TOKENS = 256
SEEDS = (1, 2)
# What a part of a character becomes.
REPLACEMENT = "\ufffd"
RUN_S_MAX = 240.0
HIT_SHARE_MIN = 0.9
TTFT_RATIO_MAX = 0.5


def ids_of(tokenizer: Tokenizer) -> list[int]:
    """Of tokens that are whole characters: of others vLLM may repeat the prompt as text."""
    ids = range(VOCABULARY_FROM, tokenizer.get_vocab_size())
    return [each for each in ids if REPLACEMENT not in tokenizer.decode([each])]


def prompts_of(ids: list[int], seed: int) -> list[list[int]]:
    """One request of each group a round, in random order within the whole."""
    draw = random.Random(seed)
    prefixes = [draw.choices(ids, k=PREFIX_TOKENS) for _ in range(GROUPS)]
    order = [group for group in range(GROUPS) for _ in range(ROUNDS)]
    draw.shuffle(order)
    return [prefixes[group] + draw.choices(ids, k=OWN_TOKENS) for group in order]


@dataclass(frozen=True)
class Pace:
    """How many ask at once, and how long after each other they begin; how long answers are, and by
    how many lengths they differ, so that they do not end together.
    """

    clients: int
    output_tokens: int
    apart_s: float = 0.0
    lengths: int = 1


SHORT = Pace(CLIENTS, OUTPUT_TOKENS)


async def send_all(
    port: int,
    key: str,
    prompts: list[list[int]],
    *,
    end_token: int,
    pace: Pace = SHORT,
    seen: list[LoadSample] | None = None,
) -> tuple[Tally, float]:
    """The prompts in their order, a few at a time; the tally and the wall time. `seen` gets each
    answer.
    """
    tally, left = Tally(), enumerate(prompts)

    async def client(number: int) -> None:
        connection = Connection(port)
        await asyncio.sleep(number * pace.apart_s)
        for place, prompt in left:
            body = {
                "model": "sluice-5m",
                "prompt": prompt,
                "max_tokens": pace.output_tokens + place % pace.lengths,
                "temperature": 0,
                "logit_bias": {str(end_token): -100},
                "stream": True,
                "stream_options": {"include_usage": True},
            }
            answer = await connection.ask(request_bytes("/v1/completions", key, body), tally)
            if seen is not None:
                seen.append(answer)
        connection.close()

    began = time.perf_counter()
    async with asyncio.timeout(RUN_S_MAX):
        await asyncio.gather(*(client(number) for number in range(pace.clients)))
    return tally, time.perf_counter() - began


# `send_all` to a gateway, with its key.
Send = Callable[..., Coroutine[Any, Any, tuple[Tally, float]]]


def figures(tally: Tally, wall_s: float) -> dict[str, float | int]:
    """What clients saw in one run."""
    possible = (tally.answers + tally.errors - GROUPS) * PREFIX_TOKENS
    return {
        "requests": tally.answers,
        "errors": tally.errors,
        "hit_of_possible": round(tally.cached_tokens / possible, 4),
        "ttft_p50_ms": round(percentile(tally.first_s, 0.5) * 1e3, 2),
        "ttft_p95_ms": round(percentile(tally.first_s, 0.95) * 1e3, 2),
        "seconds": round(wall_s, 2),
    }


def credential(name: str) -> str:
    """A new node's credential."""
    out = io.StringIO()
    call_command("node_credential", name, stdout=out, stderr=io.StringIO())
    return out.getvalue().strip()


COMPACT = (
    "--engine", "compact", "--threads", "1", "--kv-mib", str(KV_MIB),
    "--block-size", str(BLOCK_TOKENS),
)  # fmt: skip


@contextlib.contextmanager
def nodes(made: Stack, port: int, options: Sequence[Sequence[str]]) -> Iterator[list[int]]:
    """Four nodes with these options, each connected and its cache known; yields their pids."""
    pids = []
    with contextlib.ExitStack() as stack:
        for number, each in enumerate(options):
            name = f"bench-{number}"
            one = replace(made, node_name=name, node_credential=credential(name))
            pids.append(stack.enter_context(node(one, port, *each)))
        wait_for(lambda: nodes_ready(port) == NODES, "all nodes")
        yield pids


def nodes_ready(port: int) -> int:
    """How many nodes the gateway has."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=2) as answer:
        return int(json.load(answer)["nodes"])


@contextlib.contextmanager
def warmed(
    made: Stack,
    app: str,
    seed: int,
    options: Sequence[Sequence[str]],
    *,
    place: Callable[[int], None] | None = None,
) -> Iterator[tuple[Send, list[list[int]]]]:
    """Nodes with these options behind one policy, after every node has computed something: how to
    send, and the prompts. `place` gives a node its cores by its pid; the gateway then has its own.
    """
    tokenizer = Tokenizer.from_file(str(made.model / "tokenizer.json"))
    ids, end = ids_of(tokenizer), tokenizer.token_to_id(END_TOKEN)
    assert end is not None, "the shipped tokenizer has no end token"
    draw = random.Random(f"warm {seed}")
    warm = [draw.choices(ids, k=WARM_TOKENS) for _ in range(WARM_PROMPTS)]
    with (
        serve(app, pinned=place is not None) as (port, _),
        nodes(made, port, options) as pids,
    ):
        if place is not None:
            for pid in pids:
                place(pid)
        send = partial(send_all, port, made.key, end_token=end)
        asyncio.run(send(warm))
        yield send, prompts_of(ids, seed)


def run(made: Stack, app: str, seed: int) -> dict[str, float | int]:
    """One policy on fresh compact nodes."""
    with warmed(made, app, seed, (COMPACT,) * NODES) as (send, prompts):
        return figures(*asyncio.run(send(prompts)))


def measure() -> dict[str, Any]:
    """Both policies on the same requests, seed by seed, and the bars."""
    runs: dict[str, list[dict[str, float | int]]] = {policy: [] for policy in APPS}
    with stack() as made:
        for seed in SEEDS:
            for policy, rows in runs.items():
                rows.append(run(made, APPS[policy], seed))
                print(f"seed {seed} {policy:>8} {rows[-1]}", flush=True)
    ours, others = runs["sluice"], runs["random"]
    hit = min(row["hit_of_possible"] for row in ours)
    ratio = max(a["ttft_p50_ms"] / b["ttft_p50_ms"] for a, b in zip(ours, others, strict=True))
    errors = sum(row["errors"] for row in (*ours, *others))
    return {
        "workload": {
            "nodes": NODES, "groups": GROUPS, "prefix_tokens": PREFIX_TOKENS,
            "own_tokens": OWN_TOKENS, "kv_mib_per_node": KV_MIB, "clients": CLIENTS,
        },
        "runs": runs,
        "hit_of_possible_min": hit,
        "ttft_p50_ratio_max": round(ratio, 3),
        "met": bool(hit >= HIT_SHARE_MIN and ratio <= TTFT_RATIO_MAX and not errors),
    }  # fmt: skip


def main() -> int:
    """Print every run and, last, the JSON line; 1 when a bar was missed."""
    print(f"bench-routing: {describe()}")
    recorder = Recorder("routing", seeds=SEEDS)
    result = measure()
    recorder.passes = result["runs"]
    recorder.finish(result)
    return 0 if result["met"] else 1


if __name__ == "__main__":
    sys.exit(main())
