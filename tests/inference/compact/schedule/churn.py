"""Thousands of requests with random ends through the real scheduler and pool, on a model that
computes nothing: what leaks, what is held, and in which state each cancel found its request.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

from inference.compact.options import CompactOptions
from inference.compact.run.loop import StepLoop
from inference.contract.frames import Job, Sampling
from tests.inference.compact.schedule.shadow import VOCABULARY, shadow_loop

BLOCK = 4
BLOCKS = 72
CONTEXT = 128
OPTIONS = CompactOptions(
    block_size=BLOCK, kv_blocks=BLOCKS, step_tokens=32, mixed_prefill_tokens=16, running_max=12,
    speculate="on",
)  # fmt: skip
# Requests in flight at most, and the chance of each to be cancelled before a step.
OPEN_MAX = 24
CANCEL_CHANCE = 0.02


@dataclass
class Churn:
    """What was seen; `cancels` by the state in which they found their request."""

    steps: int = 0
    finished: int = 0
    blocks_leaked: int = 0
    blocks_held_max: int = 0
    preemptions: int = 0
    accepted: int = 0
    cancels: Counter[str] = field(default_factory=Counter)


def churn(requests: int, seed: int, make: type[StepLoop] = StepLoop) -> Churn:
    """Run `requests` jobs to their ends, cancelling some of them in whatever state they are.

    Raises AssertionError where the shadow model reads what it should not, where a cancel leaves
    blocks with its request, or where a choice does not end exactly once.
    """
    chance = random.Random(seed)
    loop = shadow_loop(OPTIONS, CONTEXT, make)
    seen = Churn()
    open_choices: dict[bytes, int] = {}
    ended: list[bytes] = []
    arrived = 0
    while arrived < requests or loop.has_work:
        while arrived < requests and len(open_choices) < OPEN_MAX and chance.random() < 0.7:
            job = _job(arrived, chance)
            open_choices[job.request] = job.sampling.n
            loop.accept(job, loop.clock_us())
            arrived += 1
        for request in [each for each in open_choices if chance.random() < CANCEL_CHANCE]:
            _cancel(loop, request, seen)
        if ended and chance.random() < CANCEL_CHANCE:
            _cancel(loop, chance.choice(ended), seen)
        step, _ = loop.step()
        seen.steps += 1
        seen.preemptions += step.preemptions
        seen.accepted += step.accepted
        seen.blocks_held_max = max(seen.blocks_held_max, BLOCKS - step.kv_free_blocks)
        for output in step.outputs:
            if output.finish is None:
                continue
            open_choices[output.request] -= 1
            if not open_choices[output.request]:
                del open_choices[output.request]
                seen.finished += 1
                ended = [*ended[-OPEN_MAX:], output.request]
    assert not open_choices
    seen.blocks_leaked = BLOCKS - loop.scheduler.pool.available
    return seen


def _cancel(loop: StepLoop, request: bytes, seen: Churn) -> None:
    """Cancel, note the state, and see that nothing of the request is left."""
    seen.cancels[_state(loop, request)] += 1
    loop.end(request, "cancelled")
    assert all(each.request.job.request != request for each in loop.scheduler.running)
    held = {block for each in loop.scheduler.running for block in each.blocks}
    assert loop.scheduler.pool.available == BLOCKS - len(held)


def _state(loop: StepLoop, request: bytes) -> str:
    if request not in loop.requests:
        return "finished"
    mine = [each for each in loop.scheduler.running if each.request.job.request == request]
    if not mine:
        return "queued"
    if any(len(each.tokens) - each.computed_tokens > 1 for each in mine):
        return "prefilling"
    return "decoding"


def _job(number: int, chance: random.Random) -> Job:
    """Prompts share beginnings; texts repeat themselves, so that drafts are right at times."""
    beginning = [1 + chance.randrange(2)] * (4 * chance.randrange(6))
    prompt = beginning + chance.choices(range(1, VOCABULARY), k=chance.randint(1, 40))
    return Job(
        request=number.to_bytes(16, "big"),
        model="shadow",
        tokens=prompt,
        salt=chance.choice([b"alice", b"bob"]),
        hashes=b"",
        sampling=Sampling(
            max_tokens=chance.randint(1, 24), n=chance.choice([1, 1, 1, 3]), ignore_eos=True
        ),
        stop_tokens=[],
        deadline_ms=10**9,
        priority=chance.randrange(2),
    )
