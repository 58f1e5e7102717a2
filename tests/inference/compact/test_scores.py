"""Log probabilities of a prompt equal those of `transformers`, whatever the schedule; and what
penalties and `min_tokens` make of an answer does, too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import PreTrainedModel

from inference.compact.schedule import scheduler
from inference.contract.frames import Output
from tests.inference.compact.tiny import (
    EOS,
    VOCABULARY,
    Harness,
    continuation,
    job_of,
    prompt_of,
    save_model,
    tokens_of,
)

TOLERANCE = 2e-4
TOP = 3


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, PreTrainedModel]:
    folder = tmp_path_factory.mktemp("tiny")
    return folder, save_model(folder)


def expected(oracle: Any, prompt: list[int]) -> torch.Tensor:
    """Log probabilities `[tokens - 1, vocabulary]`; row i is of the token behind token i."""
    with torch.inference_mode():
        logits: torch.Tensor = oracle(torch.tensor([prompt])).logits[0]
    return logits.float().log_softmax(dim=-1)[:-1]


def check(outputs: list[Output], oracle: Any, prompt: list[int], width: int = TOP) -> None:
    """Each token of the prompt but the first is scored once, in order, before the first token."""
    table = expected(oracle, prompt)
    scores = [each for output in outputs for each in output.prompt_logprobs or []]
    assert [each.token for each in scores] == prompt[1:]
    begun = next(place for place, output in enumerate(outputs) if output.tokens or output.finish)
    assert not any(output.prompt_logprobs for output in outputs[begun + 1 :])
    for row, each in zip(table, scores, strict=True):
        assert each.logprob == pytest.approx(float(row[each.token]), abs=TOLERANCE)
        assert len(each.top) == width
        best = row.topk(width).values.tolist() if width else []
        assert [value for _, value in each.top] == pytest.approx(best, abs=TOLERANCE)
        for token, value in each.top:
            assert float(row[token]) == pytest.approx(value, abs=TOLERANCE)


@pytest.mark.parametrize("step_tokens", [1, 7, 32, 1024])
def test_chunked_prefill(tiny: tuple[Path, PreTrainedModel], step_tokens: int, device: str) -> None:
    folder, oracle = tiny
    prompt = prompt_of(75)
    harness = Harness(folder, device=device, kv_blocks=32, step_tokens=step_tokens, running_max=1)
    outputs = harness.run(job_of(prompt, max_tokens=6, prompt_logprobs=TOP))[1, 0]
    check(outputs, oracle, prompt)
    assert tokens_of(outputs) == continuation(oracle, prompt, 6)
    assert (len(outputs) > 6) == (step_tokens < len(prompt))


def test_rows_of_a_step_are_bounded(
    tiny: tuple[Path, PreTrainedModel], device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, oracle = tiny
    monkeypatch.setattr(scheduler, "SCORED_ROWS_MAX", 16)
    prompts = [prompt_of(50, seed=number) for number in range(3)]
    plain = prompt_of(60, seed=9)
    harness = Harness(folder, device=device, kv_blocks=32)
    jobs = [job_of(each, place, prompt_logprobs=TOP) for place, each in enumerate(prompts)]
    outputs = harness.run(*jobs, job_of(plain, 9))
    assert max(sum(len(o.prompt_logprobs or []) for o in s.outputs) for s in harness.steps) <= 16
    for place, each in enumerate(prompts):
        check(outputs[place, 0], oracle, each)
    assert tokens_of(outputs[9, 0]) == continuation(oracle, plain, 8)


def test_cached_prompts_are_computed_again_and_shared(
    tiny: tuple[Path, PreTrainedModel], device: str
) -> None:
    folder, oracle = tiny
    prompt = prompt_of(70)
    harness = Harness(folder, device=device, kv_blocks=64, block_size=16)
    harness.run(job_of(prompt))
    outputs = harness.run(job_of(prompt, 2, n=2, temperature=1.0, prompt_logprobs=TOP))
    check(outputs[2, 0], oracle, prompt)
    assert not any(output.prompt_logprobs for output in outputs[2, 1])
    assert outputs[2, 0][-1].usage.cached_tokens == 0
    assert harness.run(job_of(prompt, 3))[3, 0][-1].usage.cached_tokens == 64
    assert harness.pool.available == 64


@pytest.mark.parametrize("prompt", [prompt_of(40), [7]], ids=["long", "single"])
def test_a_prompt_alone(tiny: tuple[Path, PreTrainedModel], device: str, prompt: list[int]) -> None:
    folder, oracle = tiny
    harness = Harness(folder, device=device, kv_blocks=32, step_tokens=64)
    outputs = harness.run(job_of(prompt, max_tokens=0, prompt_logprobs=0))[1, 0]
    check(outputs, oracle, prompt, width=0)
    last = outputs[-1]
    assert (last.tokens, last.logprobs, last.finish) == ([], None, "length")
    assert (last.usage.prompt_tokens, last.usage.completion_tokens) == (len(prompt), 0)


def test_preemption(tiny: tuple[Path, PreTrainedModel], device: str) -> None:
    folder, oracle = tiny
    prompts = [prompt_of(20 + number, seed=number) for number in range(6)]
    harness = Harness(folder, device=device, kv_blocks=12, block_size=16, running_max=6)
    jobs = [
        job_of(each, place, max_tokens=60, prompt_logprobs=TOP)
        for place, each in enumerate(prompts)
    ]
    outputs = harness.run(*jobs)
    assert sum(step.preemptions for step in harness.steps) > 0
    for place, each in enumerate(prompts):
        check(outputs[place, 0], oracle, each)
        assert tokens_of(outputs[place, 0]) == continuation(oracle, each, 60)


def test_the_end_token_is_told_of(tiny: tuple[Path, PreTrainedModel], device: str) -> None:
    """So that one entry stands behind the prompt's, whatever was drawn."""
    folder, _ = tiny
    harness = Harness(folder, device=device, kv_blocks=32)
    ends: dict[str, Any] = {"ignore_eos": False, "logit_bias": {EOS: 100.0}, "logprobs": 1}
    plain = harness.run(job_of(prompt_of(20), **ends))[1, 0][-1]
    told = harness.run(job_of(prompt_of(20), 2, prompt_logprobs=1, **ends))[2, 0][-1]
    assert (plain.tokens, plain.logprobs, plain.finish) == ([], None, "stop")
    assert (told.tokens, told.finish) == ([], "stop")
    assert told.logprobs is not None and [each.token for each in told.logprobs] == [EOS]


@pytest.mark.parametrize("penalty", [0.5, 1.3, 4.0])
@pytest.mark.parametrize("speculate", ["on", "off"])
def test_repetition_penalty(
    tiny: tuple[Path, PreTrainedModel], device: str, penalty: float, speculate: str
) -> None:
    folder, oracle = tiny
    prompt = prompt_of(30) * 2
    harness = Harness(folder, device=device, kv_blocks=32, speculate=speculate)
    outputs = harness.run(job_of(prompt, max_tokens=30, repetition_penalty=penalty))[1, 0]
    ids = oracle.generate(  # type: ignore[operator]
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.int64),
        max_new_tokens=30,
        do_sample=False,
        eos_token_id=-1,
        repetition_penalty=penalty,
    )
    assert tokens_of(outputs) == ids[0, len(prompt) :].tolist()


@pytest.mark.parametrize("speculate", ["on", "off"])
def test_no_end_before_the_least_number_of_tokens(
    tiny: tuple[Path, PreTrainedModel], device: str, speculate: str
) -> None:
    folder, _ = tiny
    harness = Harness(folder, device=device, kv_blocks=32, speculate=speculate)
    wanted: dict[str, Any] = {"ignore_eos": False, "logit_bias": {EOS: 100.0}, "max_tokens": 30}
    outputs = harness.run(job_of(prompt_of(20), min_tokens=9, **wanted))[1, 0]
    assert len(tokens_of(outputs)) == 9 and outputs[-1].finish == "stop"
    outputs = harness.run(job_of(prompt_of(20), 2, min_tokens=90, **wanted))[2, 0]
    assert len(tokens_of(outputs)) == 30 and outputs[-1].finish == "length"
    assert max(tokens_of(outputs)) < VOCABULARY
