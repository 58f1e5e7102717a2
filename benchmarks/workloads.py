"""What engines are given to compute: token ids in, how many tokens out."""

from __future__ import annotations

import random
from dataclasses import dataclass

from controlplane.insights.load.workloads import OUTPUT_TOKENS, Reference

SEED = 7
VOCABULARY_FROM = 300
OFFLINE_REQUESTS = 256
OFFLINE_TOKENS = (100, 1024)


@dataclass(frozen=True)
class Workload:
    """Prompts with the length of each answer, `width` of them under way at any time."""

    prompts: list[list[int]]
    outputs: list[int]
    width: int


def reference_prompts(vocabulary: int, count: int, *, run: int | str) -> list[list[int]]:
    """Token ids: a head that all runs share, then random ordinary tokens of this run's own."""
    drawn = Reference(range(VOCABULARY_FROM, vocabulary), f"{SEED} {run}")
    system = drawn.system()
    return [system + drawn.first() for _ in range(count)]


def reference(vocabulary: int, count: int, width: int, *, run: str) -> Workload:
    """The reference workload, `count` agents of it."""
    prompts = reference_prompts(vocabulary, count, run=run)
    return Workload(prompts, [OUTPUT_TOKENS] * count, width)


def offline(vocabulary: int, count: int, width: int) -> Workload:
    """Requests of random lengths in and out, all there from the start (seed 0)."""
    draw = random.Random(0)
    ids = range(VOCABULARY_FROM, vocabulary)
    prompts = [draw.choices(ids, k=draw.randint(*OFFLINE_TOKENS)) for _ in range(OFFLINE_REQUESTS)]
    outputs = [draw.randint(*OFFLINE_TOKENS) for _ in range(OFFLINE_REQUESTS)]
    return Workload(prompts[:count], outputs[:count], width)
