"""Every shape that can be served against `transformers` in float32, under a hostile schedule."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.inference.compact.shapes import SHAPES
from tests.inference.compact.tiny import (
    Harness,
    continuation,
    job_of,
    prompt_of,
    save_model,
    tokens_of,
)

# Largest difference of a log probability, natural logarithm. Seen: at most 2.2e-5.
TOLERANCE = 1e-4
TOP = 20


def _logprobs(oracle: Any, tokens: list[int]) -> torch.Tensor:
    with torch.inference_mode():
        logits: torch.Tensor = oracle(torch.tensor([tokens])).logits
        return logits[0].log_softmax(-1)


@pytest.mark.parametrize("name", SHAPES)
def test_tokens_and_logits_are_those_of_the_reference(
    name: str, device: str, tmp_path: Path
) -> None:
    kind, overrides = SHAPES[name]
    oracle = save_model(tmp_path, kind, **overrides)
    prompt = prompt_of(90)
    harness = Harness(
        tmp_path, device=device, kv_blocks=64, block_size=16, step_tokens=40, running_max=8
    )
    outputs = harness.run(job_of(prompt, max_tokens=24, logprobs=TOP))[1, 0]
    said = tokens_of(outputs)
    assert said == continuation(oracle, prompt, 24)
    expected = _logprobs(oracle, prompt + said[:-1])[len(prompt) - 1 :]
    reported = [each for output in outputs for each in output.logprobs or []]
    assert len(reported) == 24
    for row, each in enumerate(reported):
        tokens, values = zip(*each.top, strict=True)
        assert list(values) == pytest.approx(expected[row, list(tokens)].tolist(), abs=TOLERANCE)
        assert values[0] == pytest.approx(float(expected[row].max()), abs=TOLERANCE)


@pytest.mark.parametrize("name", ["mistral-window", "qwen2-window", "qwen3-moe", "smollm3"])
def test_chunks_hits_preemption_and_order_change_nothing(
    name: str, device: str, tmp_path: Path
) -> None:
    kind, overrides = SHAPES[name]
    oracle = save_model(tmp_path, kind, **overrides)
    shared = prompt_of(40)
    prompts = [shared + prompt_of(5 + 9 * number, seed=number) for number in range(5)]
    expected = [continuation(oracle, prompt, 40) for prompt in prompts]
    jobs = [job_of(prompt, number, max_tokens=40) for number, prompt in enumerate(prompts)]
    random.Random(name).shuffle(jobs)
    harness = Harness(
        tmp_path, device=device, kv_blocks=20, block_size=16, step_tokens=37, running_max=5
    )
    outputs = harness.run(*jobs)
    assert [tokens_of(outputs[number, 0]) for number in range(5)] == expected
    assert sum(step.preemptions for step in harness.steps) > 0
    assert sum(outputs[number, 0][-1].usage.cached_tokens for number in range(5)) > 0
    assert harness.pool.available == 20
