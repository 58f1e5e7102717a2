"""Who computes in a step: first prompts, short ones, and background work beside others."""

from __future__ import annotations

from itertools import repeat
from typing import Any

import pytest
from msgspec.structs import replace

from inference.compact.options import CompactOptions
from inference.compact.run.loop import StepLoop
from inference.compact.schedule.scheduler import PASSED_OVER_MAX, RESTED_MAX, Chunk
from inference.contract.capabilities import BACKGROUND
from tests.inference.compact.schedule.shadow import shadow_loop
from tests.inference.compact.tiny import STEPS_MAX, job_of


def _loop(**options: Any) -> StepLoop:
    defaults: dict[str, Any] = {"block_size": 4, "kv_blocks": 256, "step_tokens": 64}
    return shadow_loop(CompactOptions(**{**defaults, "running_max": 8, **options}), 1024)


def _accept(loop: StepLoop, number: int, length: int, *, priority: int = 0, **fields: Any) -> None:
    """Prompts of different numbers share nothing."""
    job = job_of([1 + number % 6] * length, number, salt=bytes([number]), **fields)
    loop.accept(replace(job, priority=priority), loop.clock_us())


def _counts(chunks: list[Chunk]) -> dict[int, int]:
    return {chunk.sequence.request.job.request[-1]: chunk.count for chunk in chunks}


def _step(loop: StepLoop) -> dict[int, int]:
    """What the next step computes, by the number of the request."""
    seen: list[dict[int, int]] = []
    schedule = loop.scheduler.schedule

    def noted(now_us: int, *, drafts: bool = True) -> list[Chunk]:
        chunks = schedule(now_us, drafts=drafts)
        seen.append(_counts(chunks))
        return chunks

    loop.scheduler.schedule = noted  # type: ignore[method-assign]
    try:
        loop.step()
    finally:
        loop.scheduler.schedule = schedule  # type: ignore[method-assign]
    return seen[0]


def test_a_short_prompt_does_not_stand_behind_long_ones() -> None:
    loop = _loop()
    for number in (1, 2, 3):
        _accept(loop, number, 300)
    _accept(loop, 4, 20)
    assert _step(loop) == {1: 44, 4: 20}


def test_the_first_prompt_has_half_of_each_step_however_many_short_ones_come() -> None:
    loop = _loop(running_max=64)
    _accept(loop, 1, 320, max_tokens=1)
    for number in range(2, 12):
        for more in range(5):
            _accept(loop, 10 * number + more, 16, max_tokens=1)
        assert _step(loop)[1] == 32


def test_short_prompts_pass_one_without_blocks_so_many_times_and_no_more() -> None:
    loop = _loop(kv_blocks=64, running_max=40)
    _accept(loop, 1, 100, max_tokens=50)
    _step(loop)
    _step(loop)
    _accept(loop, 2, 200, max_tokens=1)
    passed = 0
    for number in range(3, 3 + 2 * PASSED_OVER_MAX):
        _accept(loop, number, 4, max_tokens=1)
        passed += number in _step(loop)
    assert passed == PASSED_OVER_MAX
    for _ in range(STEPS_MAX):
        if 2 in (computed := _step(loop)):
            break
    # It came first as soon as there were blocks.
    assert next(iter(computed)) == 2


def test_a_step_that_only_ends_requests_tells_nothing_of_steps() -> None:
    scheduler = _loop().scheduler
    before = scheduler.pace.room_us(1, alone=False)
    scheduler.note_step([], 5_000)
    assert scheduler.pace.room_us(1, alone=False) == before


def test_background_work_rests_but_for_every_sixteenth_step() -> None:
    loop = _loop()
    _accept(loop, 1, 8, priority=BACKGROUND, max_tokens=100, ignore_eos=True)
    assert _step(loop) == {1: 8}
    assert _step(loop) == {1: 1}
    _accept(loop, 2, 8, max_tokens=60, ignore_eos=True)
    computed = [_step(loop) for _ in range(2 * (RESTED_MAX + 1))]
    beside = [1 in each for each in computed]
    assert beside == 2 * [*repeat(False, RESTED_MAX), True]
    assert all(2 in each for each in computed)


def test_background_work_goes_on_when_the_others_are_done() -> None:
    loop = _loop()
    _accept(loop, 1, 8, priority=BACKGROUND, max_tokens=100, ignore_eos=True)
    _accept(loop, 2, 8, max_tokens=2, ignore_eos=True)
    assert [_step(loop) for _ in range(4)] == [{2: 8}, {2: 1}, {1: 8}, {1: 1}]


@pytest.mark.parametrize("full", ["blocks", "places"])
def test_background_work_makes_room(full: str) -> None:
    loop = _loop(kv_blocks=32) if full == "blocks" else _loop(running_max=2)
    for number in (1, 2):
        _accept(loop, number, 60, priority=BACKGROUND, max_tokens=4, ignore_eos=True)
    for _ in range(3):
        _step(loop)
    _accept(loop, 3, 24, max_tokens=2, ignore_eos=True)
    assert _step(loop) == {3: 24}
    assert loop.scheduler.preemptions == 1
    ended = 0
    for _ in range(STEPS_MAX):
        if loop.has_work:
            ended += sum(output.finish is not None for output in loop.step()[0].outputs)
    assert ended == 3
