"""Log probabilities of prompts, and what bounds an answer from below."""

from __future__ import annotations

from typing import Any

import pytest

from inference.contract.capabilities import Capability
from inference.contract.frames import Output
from inference.contract.parts import TokenLogprob
from inference.errors import JobRefused
from tests.inference.conformance.served import Served, tokens_of
from tests.inference.conformance.subjects import declaring
from tests.support.oracle import oracle_scores
from tests.support.shipped import long_prompt

END, OTHER = 5, 900
# bfloat16 keeps three digits.
TOLERANCE = {"bfloat16": 0.15}


def scores_of(outputs: list[Output]) -> list[TokenLogprob]:
    """All scored tokens, which come before the first token."""
    begun = next(place for place, each in enumerate(outputs) if each.tokens or each.finish)
    assert not any(each.prompt_logprobs for each in outputs[begun + 1 :])
    return [score for each in outputs for score in each.prompt_logprobs or []]


@declaring(Capability.PROMPT_LOGPROBS)
@pytest.mark.parametrize("tokens", [1, 2, 40, 150])
async def test_prompts_are_scored(served: Served, tokens: int) -> None:
    prompt = long_prompt(tokens)
    outputs = await served.run(served.job(prompt, max_tokens=2, prompt_logprobs=2))
    scores, table = scores_of(outputs), oracle_scores(prompt)
    assert [each.token for each in scores] == prompt[1:]
    near = TOLERANCE.get(served.engine.facts.dtype, 2e-3)
    for row, score in zip(table, scores, strict=True):
        assert score.logprob == pytest.approx(row[score.token], abs=near)
        assert len(score.top) == 2
        for token, logprob in score.top:
            assert logprob == pytest.approx(row[token], abs=near)
        assert score.top[0][1] == pytest.approx(max(row), abs=near)
    assert outputs[-1].usage.prompt_tokens == tokens


@declaring(Capability.PROMPT_LOGPROBS)
async def test_a_prompt_is_scored_without_an_answer(served: Served) -> None:
    prompt = long_prompt(90)
    job = served.job(prompt, max_tokens=0, prompt_logprobs=0)
    outputs = await served.run(job)
    assert [each.token for each in scores_of(outputs)] == prompt[1:]
    assert (tokens_of(outputs), outputs[-1].finish) == ([], "length")
    usage = outputs[-1].usage
    assert (usage.prompt_tokens, usage.completion_tokens) == (90, 0)


@declaring(Capability.PROMPT_LOGPROBS, Capability.PREFIX_CACHE)
async def test_what_is_cached_is_scored_again(served: Served) -> None:
    prompt = long_prompt(100)
    await served.run(served.job(prompt))
    outputs = await served.run(served.job(prompt, prompt_logprobs=1))
    assert [each.token for each in scores_of(outputs)] == prompt[1:]


@declaring(Capability.PROMPT_LOGPROBS, Capability.LOGPROBS, Capability.LOGIT_BIAS)
async def test_the_end_token_stands_behind_the_prompt(served: Served) -> None:
    wanted: dict[str, Any] = {"logit_bias": {END: 100.0}, "ignore_eos": False, "logprobs": 1}
    told = (await served.run(served.job(20, prompt_logprobs=1, **wanted)))[-1]
    assert (told.tokens, told.finish) == ([], "stop")
    assert [each.token for each in told.logprobs or []] == [END]
    silent = (await served.run(served.job(20, **wanted)))[-1]
    assert not silent.logprobs


@declaring(Capability.MIN_TOKENS, Capability.LOGIT_BIAS, Capability.STOP_TOKENS)
async def test_no_end_before_the_least_number_of_tokens(served: Served) -> None:
    wanted: dict[str, Any] = {"logit_bias": {END: 100.0}, "ignore_eos": False, "max_tokens": 9}
    outputs = await served.run(served.job(20, min_tokens=4, **wanted))
    assert (len(tokens_of(outputs)), outputs[-1].finish) == (4, "stop")
    wanted = {"logit_bias": {OTHER: 100.0}, "max_tokens": 9, "stop_tokens": [OTHER]}
    outputs = await served.run(served.job(20, min_tokens=4, **wanted))
    assert (len(tokens_of(outputs)), outputs[-1].finish) == (4, "stop")
    assert OTHER not in tokens_of(outputs)


@declaring(Capability.REPETITION_PENALTY)
async def test_a_repetition_penalty_spreads_the_words(served: Served) -> None:
    plain = tokens_of(await served.run(served.job(40, max_tokens=48)))
    spread = tokens_of(await served.run(served.job(40, max_tokens=48, repetition_penalty=2.0)))
    assert len(set(spread)) > len(set(plain))


@declaring()
@pytest.mark.parametrize(
    "wrong",
    [
        {"max_tokens": 0}, {"min_tokens": -1}, {"prompt_logprobs": 21}, {"prompt_logprobs": -1},
        {"repetition_penalty": 0.0}, {"repetition_penalty": float("nan")},
    ],
    ids=str,
)  # fmt: skip
async def test_out_of_range(served: Served, wrong: dict[str, Any]) -> None:
    with pytest.raises(JobRefused, match=f"sampling.{next(iter(wrong))}"):
        served.engine.submit(served.job(20, **wrong))
