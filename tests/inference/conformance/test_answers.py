"""What an answer is made of: tokens step by step, ends, counts, choices, log probabilities."""

from __future__ import annotations

import itertools
import math

from inference.contract.capabilities import Capability
from tests.inference.conformance.served import Served, tokens_of
from tests.inference.conformance.subjects import declaring
from tests.support.shipped import long_prompt


@declaring(Capability.STREAM, Capability.TOKENS)
async def test_tokens_come_step_by_step(served: Served) -> None:
    outputs = await served.run(served.job(40, max_tokens=6))
    assert len(outputs) > 2
    assert len(tokens_of(outputs)) == 6
    assert [each.finish for each in outputs] == [None] * (len(outputs) - 1) + ["length"]


@declaring(Capability.TOKENS)
async def test_usage_is_cumulative_and_timings_add_up(served: Served) -> None:
    outputs = await served.run(served.job(40, max_tokens=6))
    counts = [each.usage.completion_tokens for each in outputs]
    assert counts == list(itertools.accumulate(len(each.tokens) for each in outputs))
    for output in outputs:
        assert (output.usage.prompt_tokens, output.usage.cached_tokens) == (40, 0)
        timing = output.timing
        parts = (timing.queue_us, timing.prefill_us, timing.decode_us)
        assert min(parts) >= 0
        assert sum(parts) == timing.held_us
    assert [each.timing.held_us for each in outputs] == sorted(
        each.timing.held_us for each in outputs
    )


@declaring(Capability.TOKENS)
async def test_the_context_ends_an_answer(served: Served) -> None:
    window = served.engine.facts.context_window
    outputs = await served.run(served.job(window - 3, max_tokens=50))
    assert len(tokens_of(outputs)) == 3
    assert outputs[-1].finish == "length"


@declaring(Capability.STOP_TOKENS)
async def test_a_stop_token_is_counted_but_not_shown(served: Served) -> None:
    said = tokens_of(await served.run(served.job(40, max_tokens=12)))
    stop = next(token for token in said[2:] if token not in said[:2])
    shown = said[: said.index(stop)]
    outputs = await served.run(served.job(40, max_tokens=12, stop_tokens=[stop]))
    assert tokens_of(outputs) == shown
    assert outputs[-1].finish == "stop"
    assert outputs[-1].usage.completion_tokens == len(shown) + 1


@declaring(Capability.LOGIT_BIAS)
async def test_the_models_own_end_token(served: Served) -> None:
    """A bias forces the end token; `ignore_eos` makes it an ordinary one."""
    forced = {5: 100.0}
    ended = await served.run(served.job(20, logit_bias=forced, ignore_eos=False))
    assert (tokens_of(ended), ended[-1].finish) == ([], "stop")
    assert ended[-1].usage.completion_tokens == 1
    ignored = await served.run(served.job(20, logit_bias=forced, max_tokens=3))
    assert (tokens_of(ignored), ignored[-1].finish) == ([5, 5, 5], "length")


@declaring(Capability.N)
async def test_choices_end_once_each_and_are_counted_together(served: Served) -> None:
    job = served.job(40, n=3, max_tokens=5)
    outputs = await served.run(job)
    texts = [tokens_of(outputs, choice) for choice in range(3)]
    assert texts == [texts[0]] * 3
    assert len(texts[0]) == 5
    assert served.sink.finishes(job.request) == ["length"] * 3
    assert outputs[-1].usage.completion_tokens == 15
    assert outputs[-1].usage.prompt_tokens == 40


@declaring(Capability.N, Capability.SEED)
async def test_choices_of_a_seed_differ(served: Served) -> None:
    outputs = await served.run(served.job(40, n=2, max_tokens=16, temperature=1.5, seed=3))
    assert tokens_of(outputs, 0) != tokens_of(outputs, 1)


@declaring(Capability.LOGPROBS)
async def test_log_probabilities(served: Served) -> None:
    outputs = await served.run(served.job(40, max_tokens=4, logprobs=3))
    for output in outputs:
        reported = output.logprobs or []
        assert [each.token for each in reported] == output.tokens
        for each in reported:
            values = [value for _, value in each.top]
            assert len(values) == 3
            assert values == sorted(values, reverse=True)
            assert all(math.isfinite(value) and value <= 0 for value in values)
            # What is drawn greedily is the likeliest.
            assert each.top[0] == (each.token, each.logprob)


@declaring(Capability.LOGPROBS)
async def test_log_probabilities_without_alternatives(served: Served) -> None:
    outputs = await served.run(served.job(40, max_tokens=2, logprobs=0))
    reported = [each for output in outputs for each in output.logprobs or []]
    assert [each.top for each in reported] == [[], []]
    plain = await served.run(served.job(40, max_tokens=2))
    assert [each.logprobs for each in plain] == [None] * len(plain)


@declaring(Capability.SPECULATION)
async def test_drafts_are_counted(served: Served) -> None:
    phrase = long_prompt(8)
    bias = dict.fromkeys(phrase[:2], 100.0)
    outputs = await served.run(served.job(phrase * 6, max_tokens=60, logit_bias=bias))
    steps = served.sink.steps
    accepted = sum(step.accepted for step in steps)
    assert 0 < accepted <= sum(step.drafted for step in steps)
    # What was accepted came without a step of its own.
    assert len(tokens_of(outputs)) == 60
    assert len(outputs) <= 60 - accepted
