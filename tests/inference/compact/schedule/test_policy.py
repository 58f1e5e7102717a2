"""Properties of queue, scheduler and block pool under random arrivals, cancels and tiny pools."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import hypothesis.strategies as st
from hypothesis import given, settings

from inference.compact.options import CHOICES, CompactOptions
from inference.compact.schedule.request import Sequence
from inference.contract.blocks import HASH_BYTES
from inference.contract.frames import Job, Sampling
from tests.inference.compact.schedule.shadow import VOCABULARY, shadow_loop
from tests.inference.compact.tiny import STEPS_MAX

BLOCK = 4
BLOCKS = 12
CONTEXT = BLOCK * BLOCKS


@dataclass(frozen=True)
class Arrival:
    """A job that comes in after `steps` more steps, perhaps cancelled some steps later."""

    steps: int
    tokens: list[int]
    max_tokens: int
    choices: int
    salt: bytes
    priority: int
    ignore_eos: bool
    cancel_after: int | None


# Prompts from few beginnings, so that they share blocks often.
PROMPTS = st.tuples(
    st.sampled_from([[], [1, 2, 3, 4], [1, 2, 3, 4, 5, 6, 1, 2], [3] * 12]),
    st.lists(st.integers(1, VOCABULARY - 1), min_size=1, max_size=14),
).map(lambda parts: parts[0] + parts[1])
ARRIVALS = st.builds(
    Arrival,
    steps=st.integers(0, 4),
    tokens=PROMPTS,
    max_tokens=st.integers(1, 20),
    choices=st.integers(1, 3),
    salt=st.sampled_from([b"alice", b"bob"]),
    priority=st.integers(0, 1),
    ignore_eos=st.booleans(),
    cancel_after=st.none() | st.integers(0, 12),
)
OPTIONS = st.builds(
    CompactOptions,
    block_size=st.just(BLOCK),
    kv_blocks=st.just(BLOCKS),
    step_tokens=st.integers(4, 40),
    mixed_prefill_tokens=st.integers(1, 16),
    running_max=st.integers(1, 4),
    speculate=st.sampled_from(CHOICES["speculate"]),
    drafts_max=st.integers(1, 5),
)


def _job(number: int, arrival: Arrival) -> Job:
    return Job(
        request=number.to_bytes(16, "big"),
        model="shadow",
        tokens=arrival.tokens,
        salt=arrival.salt,
        hashes=b"",
        sampling=Sampling(
            max_tokens=arrival.max_tokens, n=arrival.choices, ignore_eos=arrival.ignore_eos
        ),
        stop_tokens=[],
        deadline_ms=10**9,
        priority=arrival.priority,
    )


@settings(max_examples=150, deadline=None)
@given(OPTIONS, st.lists(ARRIVALS, min_size=1, max_size=10))
def test_nothing_leaks_and_every_choice_ends_once(
    options: CompactOptions, arrivals: list[Arrival]
) -> None:
    loop = shadow_loop(options, CONTEXT)
    pool = loop.scheduler.pool
    finishes: Counter[tuple[bytes, int]] = Counter()
    completion: dict[bytes, int] = {}
    findable: set[bytes] = set()
    cancels: dict[int, list[bytes]] = {}
    steps = 0

    def step() -> None:
        nonlocal steps
        for request in cancels.pop(steps, []):
            loop.end(request, "cancelled")
            assert all(each.request.job.request != request for each in loop.scheduler.running)
        report, kv = loop.step()
        steps += 1
        assert 0 <= report.kv_free_blocks <= BLOCKS
        for output in report.outputs:
            finishes[output.request, output.choice] += output.finish is not None
            assert finishes[output.request, output.choice] <= 1
            usage = output.usage
            assert usage.cached_tokens < usage.prompt_tokens or usage.prompt_tokens == 0
            completion[output.request] = usage.completion_tokens
        if kv is not None:
            findable.update(_split(kv.stored))
            assert findable.issuperset(_split(kv.removed))
            findable.difference_update(_split(kv.removed))
        assert findable == set(pool._by_hash)

    for number, arrival in enumerate(arrivals):
        for _ in range(arrival.steps):
            step()
        loop.accept(_job(number, arrival), loop.clock_us())
        if arrival.cancel_after is not None:
            due = steps + arrival.cancel_after
            cancels.setdefault(due, []).append(number.to_bytes(16, "big"))
    while loop.has_work:
        step()
        assert steps < STEPS_MAX
    assert pool.available == BLOCKS
    assert loop.requests == {}
    for number, arrival in enumerate(arrivals):
        request = number.to_bytes(16, "big")
        assert [finishes[request, choice] for choice in range(arrival.choices)] == (
            [1] * arrival.choices
        )
        assert completion[request] <= arrival.max_tokens * arrival.choices


def test_a_lower_priority_yields_its_blocks_first_whenever_it_came() -> None:
    options = CompactOptions(block_size=BLOCK, kv_blocks=BLOCKS, step_tokens=40, running_max=4)
    loop = shadow_loop(options, CONTEXT)
    yielded: list[int] = []
    finish = loop.scheduler.finish

    def noted(sequence: Sequence, now_us: int) -> None:
        if sequence.request.completion_tokens < 30:
            yielded.append(sequence.request.job.priority)
        finish(sequence, now_us)

    loop.scheduler.finish = noted  # type: ignore[method-assign]
    for number, priority in enumerate((0, 1, 0)):
        arrival = Arrival(0, [1, 2, 3, number], 30, 1, b"alice", priority, True, None)
        loop.accept(_job(number, arrival), loop.clock_us())
        loop.step()
    while loop.has_work:
        loop.step()
    assert loop.scheduler.preemptions > 0
    assert set(yielded) == {0}


def _split(packed: bytes) -> list[bytes]:
    return [packed[i : i + HASH_BYTES] for i in range(0, len(packed), HASH_BYTES)]


@settings(max_examples=50, deadline=None)
@given(OPTIONS, st.lists(ARRIVALS, min_size=1, max_size=6))
def test_a_text_does_not_depend_on_its_neighbours_or_on_drafts(
    options: CompactOptions, arrivals: list[Arrival]
) -> None:
    together = _texts(options, arrivals)
    for number, arrival in enumerate(arrivals):
        (alone,) = _texts(replace(options, speculate="off"), [arrival])
        assert together[number] == alone


def _texts(options: CompactOptions, arrivals: list[Arrival]) -> list[list[list[int]]]:
    """Tokens of each choice of each arrival, all submitted at once and none cancelled."""
    loop = shadow_loop(options, CONTEXT)
    texts: list[list[list[int]]] = [[[] for _ in range(arrival.choices)] for arrival in arrivals]
    for number, arrival in enumerate(arrivals):
        loop.accept(_job(number, arrival), loop.clock_us())
    while loop.has_work:
        for output in loop.step()[0].outputs:
            texts[int.from_bytes(output.request, "big")][output.choice] += output.tokens
    return texts
