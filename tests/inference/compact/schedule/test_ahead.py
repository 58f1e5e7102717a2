"""A loop that is a step ahead of its outputs: the same outputs, usage and blocks as one that waits
for each step, whatever ends, is cancelled or preempted meanwhile.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from inference.compact.options import CompactOptions
from inference.compact.run.ahead import AheadLoop
from inference.compact.run.loop import StepLoop
from inference.compact.schedule.scheduler import Chunk
from inference.contract.capabilities import BACKGROUND
from inference.contract.frames import Job, Sampling
from tests.inference.compact.schedule.churn import churn
from tests.inference.compact.schedule.shadow import (
    VOCABULARY,
    ShadowDrawn,
    ShadowModel,
    shadow_loop,
)
from tests.inference.compact.tiny import job_of

BLOCK, CONTEXT = 4, 128
FEW_BLOCKS, MANY_BLOCKS = 40, 4000
REQUESTS = 120
STEPS_MAX = 20_000


class Ended(NamedTuple):
    """What is left of a choice, and what was charged for its request when it ended."""

    tokens: list[int]
    finish: str
    completion_tokens: int
    prompt_tokens: int


def _options(blocks: int, speculate: str) -> CompactOptions:
    return CompactOptions(
        block_size=BLOCK, kv_blocks=blocks, step_tokens=32, mixed_prefill_tokens=16,
        running_max=10, speculate=speculate,
    )  # fmt: skip


def _job(number: int, chance: random.Random) -> Job:
    """Some end by a token, which no one knows when their next step is planned."""
    beginning = [1 + chance.randrange(2)] * (4 * chance.randrange(6))
    sampling: dict[str, Any] = {
        "max_tokens": chance.choice([0, 1, 2, 9, 30]), "ignore_eos": chance.random() < 0.5,
        "n": chance.choice([1, 1, 1, 3]),
    }  # fmt: skip
    return Job(
        request=number.to_bytes(16, "big"),
        model="shadow",
        tokens=beginning + chance.choices(range(1, VOCABULARY), k=chance.randint(1, 40)),
        salt=chance.choice([b"alice", b"bob"]),
        hashes=b"",
        sampling=Sampling(**sampling),
        stop_tokens=[6] if chance.random() < 0.3 else [],
        deadline_ms=10**9,
        priority=chance.choice([0, 1, BACKGROUND]),
    )


def _run(
    make: type[StepLoop], seed: int, options: CompactOptions
) -> tuple[dict[tuple[bytes, int], Ended], StepLoop]:
    """All jobs to their ends. Who reads a stream cancels a few of them when so many tokens came, as
    a gateway does at a stop string.
    """
    chance = random.Random(seed)
    loop = shadow_loop(options, CONTEXT, make)
    jobs = [_job(number, chance) for number in range(REQUESTS)]
    cut = {
        job.request: chance.randint(1, 20)
        for job in jobs
        if job.sampling.n == 1 and chance.random() < 0.3
    }
    seen: dict[tuple[bytes, int], list[int]] = {}
    ended: dict[tuple[bytes, int], Ended] = {}
    last: dict[bytes, int] = {}
    steps = 0
    while jobs or loop.has_work:
        for job in jobs[: chance.choice([0, 0, 1, 4])] or (jobs if not loop.has_work else [])[:1]:
            loop.accept(job, loop.clock_us())
            jobs.remove(job)
        for output in loop.step()[0].outputs:
            key = output.request, output.choice
            assert key not in ended
            seen.setdefault(key, []).extend(output.tokens)
            usage = output.usage
            assert usage.completion_tokens >= last.get(output.request, 0)
            last[output.request] = usage.completion_tokens
            if output.finish is not None:
                counts = usage.completion_tokens, usage.prompt_tokens
                ended[key] = Ended(seen[key], output.finish, *counts)
            elif len(seen[key]) >= cut.get(output.request, CONTEXT):
                loop.end(output.request, "cancelled")
        steps += 1
        assert steps < STEPS_MAX
    return ended, loop


def _comparable(ended: dict[tuple[bytes, int], Ended]) -> dict[tuple[bytes, int], Ended]:
    """Choices of one request may end in another order; what is charged is the most of them."""
    most: dict[bytes, int] = {}
    for (request, _), each in ended.items():
        most[request] = max(most.get(request, 0), each.completion_tokens)
    return {key: each._replace(completion_tokens=most[key[0]]) for key, each in ended.items()}


@pytest.mark.parametrize("speculate", ["off", "on", "auto"])
@pytest.mark.parametrize("blocks", [FEW_BLOCKS, MANY_BLOCKS])
@pytest.mark.parametrize("seed", range(4))
def test_it_says_charges_and_keeps_the_same(seed: int, blocks: int, speculate: str) -> None:
    options = _options(blocks, speculate)
    right, waiting = _run(StepLoop, seed, options)
    found, ahead = _run(AheadLoop, seed, options)
    assert _comparable(found) == _comparable(right)
    assert len({each.finish for each in found.values()}) == 3
    for loop in (waiting, ahead):
        assert loop.scheduler.pool.available == blocks
        assert loop.scheduler.preemptions > 0 or blocks == MANY_BLOCKS
    if blocks == MANY_BLOCKS:
        # Nothing was evicted: what was ever cached.
        assert _cached(ahead) == _cached(waiting)


def _cached(loop: StepLoop) -> set[bytes]:
    return set(loop.scheduler.pool._by_hash)


def test_nothing_leaks_under_cancels_in_any_state() -> None:
    seen = churn(3000, 0, AheadLoop)
    assert seen.finished == 3000
    assert seen.blocks_leaked == 0
    assert min(seen.cancels[state] for state in ("queued", "prefilling", "decoding")) > 20
    assert min(seen.preemptions, seen.accepted) > 50


class Told(ShadowModel):
    """Tells when steps are launched and read."""

    def __init__(self, options: CompactOptions) -> None:
        super().__init__(BLOCK, options)
        self.told: list[str] = []
        self.rows = 0

    def launch(self, chunks: list[Chunk], before: ShadowDrawn | None) -> Callable[[], ShadowDrawn]:
        number = sum(each.startswith("launch") for each in self.told)
        self.told.append(f"launch {number}")
        self.rows += sum(chunk.count for chunk in chunks)
        draw = super().launch(chunks, before)

        def told() -> ShadowDrawn:
            self.told.append(f"draw {number}")
            return ToldDrawn(draw().tokens, self.told, number)

        return told


class ToldDrawn(ShadowDrawn):
    def __init__(self, tokens: list[int], told: list[str], number: int) -> None:
        super().__init__(tokens)
        self.told, self.number = told, number

    def read(self) -> Any:
        self.told.append(f"read {self.number}")
        return super().read()


def _told(speculate: str, **sampling: Any) -> tuple[Told, list[list[int]]]:
    options = _options(MANY_BLOCKS, speculate)
    loop = shadow_loop(options, CONTEXT, AheadLoop)
    model = loop.model = Told(options)
    loop.accept(job_of([1, 2, 3], 1, **sampling), 0)
    steps = []
    while loop.has_work:
        outputs = loop.step()[0].outputs
        steps.append([token for output in outputs for token in output.tokens])
    return model, steps


def test_a_step_is_read_once_the_next_one_was_launched_and_drawn_after_that() -> None:
    model, steps = _told("off", max_tokens=3)
    assert model.told == [
        "launch 0", "draw 0", "launch 1", "read 0", "draw 1", "launch 2", "read 1", "draw 2",
        "read 2",
    ]  # fmt: skip
    # What ends by its length is not computed beyond it.
    assert model.rows == 3 + 2
    assert [len(each) for each in steps] == [0, 1, 1, 1]


def test_steps_that_may_have_drafts_wait_for_each_other() -> None:
    model, _ = _told("on", max_tokens=3)
    assert model.told[:6] == ["launch 0", "draw 0", "read 0", "launch 1", "draw 1", "read 1"]


def test_what_ends_unseen_is_computed_once_more_and_dropped() -> None:
    long, steps = _told("off", max_tokens=40)
    tokens = [token for step in steps for token in step]
    place = tokens.index(0)
    model, steps = _told("off", max_tokens=40, ignore_eos=False)
    assert [token for step in steps for token in step] == tokens[:place]
    # Of the prompt, of each token, and of the end token, whose next one nobody asked for.
    assert model.rows == 3 + place + 1
    assert long.rows == 3 + 39
