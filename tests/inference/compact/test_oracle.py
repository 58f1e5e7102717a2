"""Greedy tokens equal those of `transformers` in float32, whatever the schedule and the device."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

import inference
from tests.inference.compact.tiny import (
    CONTEXT,
    Harness,
    continuation,
    job_of,
    prompt_of,
    save_model,
    tokens_of,
)

SHIPPED = Path(inference.__file__).parent / "assets" / "sluice-5m"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, PreTrainedModel]:
    folder = tmp_path_factory.mktemp("tiny")
    return folder, save_model(folder)


@pytest.mark.parametrize("step_tokens", [1, 7, 32, 33, 1024])
def test_chunked_prefill(tiny: tuple[Path, PreTrainedModel], step_tokens: int, device: str) -> None:
    folder, oracle = tiny
    prompt = prompt_of(75, seed=step_tokens)
    harness = Harness(folder, device=device, kv_blocks=32, step_tokens=step_tokens, running_max=1)
    outputs = harness.run(job_of(prompt, max_tokens=12))
    assert tokens_of(outputs[1, 0]) == continuation(oracle, prompt, 12)


def test_prefix_hits_between_and_within_steps(
    tiny: tuple[Path, PreTrainedModel], device: str
) -> None:
    folder, oracle = tiny
    shared = prompt_of(70)
    prompts = [shared + prompt_of(20, seed=number) for number in range(5)]
    harness = Harness(folder, device=device, kv_blocks=64, block_size=16)
    first = harness.run(job_of(prompts[0], number=10))
    # Four at once share the old blocks; prompt 4 twice shares blocks made in the same step.
    jobs = [job_of(prompt, number) for number, prompt in enumerate([*prompts[1:], prompts[4]])]
    outputs = harness.run(*jobs)
    assert first[10, 0][-1].usage.cached_tokens == 0
    for number, prompt in enumerate([*prompts[1:], prompts[4]]):
        assert tokens_of(outputs[number, 0]) == continuation(oracle, prompt, 8)
        assert outputs[number, 0][-1].usage.cached_tokens == (80 if number == 4 else 64)


def test_generated_blocks_are_found_again(tiny: tuple[Path, PreTrainedModel], device: str) -> None:
    folder, oracle = tiny
    prompt = prompt_of(30)
    harness = Harness(folder, device=device, kv_blocks=64, block_size=16)
    said = tokens_of(harness.run(job_of(prompt, max_tokens=40))[1, 0])
    follow_up = prompt + said + prompt_of(5)
    outputs = harness.run(job_of(follow_up, number=2))
    assert tokens_of(outputs[2, 0]) == continuation(oracle, follow_up, 8)
    # The last generated token was never computed: 69 of 70 tokens lie in 4 full blocks.
    assert outputs[2, 0][-1].usage.cached_tokens == 64


def test_preemption(tiny: tuple[Path, PreTrainedModel], device: str) -> None:
    folder, oracle = tiny
    prompts = [prompt_of(20 + number, seed=number) for number in range(6)]
    harness = Harness(folder, device=device, kv_blocks=12, block_size=16, running_max=6)
    outputs = harness.run(
        *(job_of(prompt, number, max_tokens=60) for number, prompt in enumerate(prompts))
    )
    for number, prompt in enumerate(prompts):
        assert tokens_of(outputs[number, 0]) == continuation(oracle, prompt, 60)
    assert sum(step.preemptions for step in harness.steps) > 0
    assert harness.pool.available == 12


def test_shuffled_batch(tiny: tuple[Path, PreTrainedModel], device: str) -> None:
    folder, oracle = tiny
    prompts = [prompt_of(random.Random(number).randrange(1, 150), number) for number in range(12)]
    jobs = [job_of(prompt, n, max_tokens=5 + 3 * n) for n, prompt in enumerate(prompts)]
    expected = [continuation(oracle, p, 5 + 3 * n) for n, p in enumerate(prompts)]
    for order in range(2):
        random.Random(order).shuffle(jobs)
        harness = Harness(
            folder, device=device, kv_blocks=128, block_size=16, step_tokens=100, running_max=10
        )
        outputs = harness.run(*jobs)
        assert [tokens_of(outputs[n, 0]) for n in range(12)] == expected


def test_choices_share_the_prompt(tiny: tuple[Path, PreTrainedModel], device: str) -> None:
    folder, oracle = tiny
    prompt = prompt_of(70)
    harness = Harness(folder, device=device, kv_blocks=20, block_size=16)
    harness.accept(job_of(prompt, n=4, max_tokens=10))
    harness.step()
    harness.step()
    # Four full blocks once, and a tail for each of four choices.
    assert harness.pool.size - harness.pool.available == 4 + 4
    outputs = harness.run()
    harness_steps = [output for step in harness.steps for output in step.outputs]
    expected = continuation(oracle, prompt, 10)
    for choice in range(4):
        mine = [output for output in harness_steps if output.choice == choice]
        assert tokens_of(mine) == expected
    last = outputs[1, 3][-1].usage
    assert (last.prompt_tokens, last.cached_tokens, last.completion_tokens) == (70, 0, 40)


def test_full_context(tiny: tuple[Path, PreTrainedModel], device: str) -> None:
    folder, oracle = tiny
    prompt = prompt_of(CONTEXT - 6)
    outputs = Harness(folder, device=device, kv_blocks=16).run(job_of(prompt, max_tokens=100))
    assert tokens_of(outputs[1, 0]) == continuation(oracle, prompt, 6)
    assert outputs[1, 0][-1].finish == "length"


def test_the_shipped_model(device: str) -> None:
    oracle = AutoModelForCausalLM.from_pretrained(SHIPPED, dtype=torch.float32)
    harness = Harness(SHIPPED, device=device, kv_blocks=64, step_tokens=64, running_max=8)
    generator = torch.Generator().manual_seed(0)
    prompts = [torch.randint(6, 4096, (90,), generator=generator).tolist() for _ in range(3)]
    outputs = harness.run(*(job_of(p, n, max_tokens=20) for n, p in enumerate(prompts)))
    for number, prompt in enumerate(prompts):
        assert tokens_of(outputs[number, 0]) == continuation(oracle, prompt, 20)
