"""The load of vLLM's steps, and how far it is with the prompts that wait."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from inference.contract.frames import Step
from inference.engines.vllm.load import LoadLogger, PromptProgress
from inference.engines.vllm.request import LiveRequest
from tests.support.fleet import make_job


def stats(context_tokens: int | None) -> Any:
    """What vLLM's scheduler says of a step; the conformance suite holds the names to vLLM's."""
    details = None
    if context_tokens is not None:
        details = SimpleNamespace(num_ctx_tokens=context_tokens)
    return SimpleNamespace(
        num_running_reqs=1, num_waiting_reqs=2, num_skipped_waiting_reqs=0, kv_cache_usage=0.25,
        spec_decoding_stats=None, iteration_details=details,
    )  # fmt: skip


def test_a_step_tells_the_prompt_tokens_that_it_computed() -> None:
    told: list[tuple[Step, float | None]] = []
    logger = LoadLogger(lambda step, free: told.append((step, free)))
    for context_tokens in (512, 0, None):
        logger.record(stats(context_tokens), None)
    assert [step.prefilled_tokens for step, _ in told] == [512, 0, 0]
    assert {free for _, free in told} == {0.75}
    logger.step = told[0][0]
    logger.record(None, None)
    assert (told[-1][0].prefilled_tokens, told[-1][1]) == (0, None)


def test_a_step_computes_what_has_begun_and_the_first_that_waits() -> None:
    logger = LoadLogger(lambda step, free: None)
    assert logger.computing([]) is None
    live = [LiveRequest(make_job(), 0) for _ in range(3)]
    live[1]._first_us = 1
    step = logger.computing(live)
    assert step is not None
    assert step.requests == [live[1].job.request, live[0].job.request]
    waiting = logger.computing(live[:1])
    assert waiting is not None and waiting[:2] == (step.requests[1:], step.began_s)
    logger.record(stats(1), None)
    later = logger.computing(live)
    assert later is not None and later.began_s > step.began_s


def test_what_is_prefilled_no_longer_waits() -> None:
    progress = PromptProgress()
    assert progress.left(3000) == 3000
    progress.prefilled(2000)
    assert progress.left(3000) == 1000
    # The first of two prompts of 1500 is done; 500 tokens of the second are.
    progress.waits_no_more(1500)
    assert progress.left(1500) == 1000
    progress.prefilled(500)
    assert progress.left(1500) == 500


def test_a_prompt_that_was_taken_back_is_forgotten() -> None:
    progress = PromptProgress()
    progress.prefilled(700)
    assert progress.left(0) == 0
    assert progress.left(100) == 100
    progress.waits_no_more(900)
    assert progress.left(50) == 50


def test_what_was_computed_in_vain_hides_no_later_prompt() -> None:
    progress = PromptProgress()
    # Two prompts of 1000; one is computed for the most part, then its client leaves.
    progress.prefilled(900)
    assert progress.left(2000) == 1100
    progress.waits_no_more(1000)
    assert progress.left(1000) == 1000
    # A prompt of 1000 is preempted and computed again.
    progress.prefilled(800)
    progress.prefilled(1000)
    assert progress.left(1000) == 0
    assert progress.left(3000) == 2000
    progress.waits_no_more(1000)
    assert progress.left(2000) == 2000
