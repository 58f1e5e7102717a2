"""A real model a step ahead of its outputs says what it says step by step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from inference.compact.attention.kernels import ON_CPU
from inference.compact.run.ahead import AheadLoop
from inference.compact.run.eager import EagerModel
from inference.compact.run.graphs import RecordedModel
from inference.compact.run.loop import StepLoop
from inference.compact.schedule.request import WORD_BITS
from inference.contract.frames import Output
from tests.inference.compact.attention.together import attend_by_definition
from tests.inference.compact.tiny import (
    EOS,
    VOCABULARY,
    Harness,
    job_of,
    prompt_of,
    save_model,
    tokens_of,
)

REQUESTS = 12
KINDS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.9, "seed": 7},
    {"temperature": 1.2, "seed": 8, "top_p": 0.8, "n": 2},
    {"temperature": 1.0, "seed": 9, "top_k": 5, "frequency_penalty": 1.5},
    {"repetition_penalty": 1.4, "presence_penalty": 0.5, "min_tokens": 4, "ignore_eos": False},
    {"logprobs": 3, "logit_bias": {17: 6.0}},
    {"prompt_logprobs": 2},
]


class Turns:
    """Tokens by turns of three, and an end behind so many; nothing is asked behind that."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.taken: list[int] = []

    def fill(self, bits: memoryview) -> None:
        assert EOS not in self.taken
        allowed = self._allowed()
        words = [0] * (-(-VOCABULARY // WORD_BITS))
        for token in allowed:
            words[token // WORD_BITS] |= 1 << token % WORD_BITS
        bits[:] = b"".join(word.to_bytes(4, "little") for word in words)

    @staticmethod
    def fill_all(masks: list[tuple[Turns, int]], bits: NDArray[np.uint8]) -> None:
        for mask, row in masks:
            mask.fill(bits[row].data)

    def accept(self, token: int) -> bool:
        if token not in self._allowed():
            return False
        self.taken.append(token)
        return True

    def rollback(self, count: int) -> None:
        if count:
            del self.taken[-count:]

    def _allowed(self) -> set[int]:
        if len(self.taken) >= self.length:
            return {EOS}
        return {t for t in range(8, VOCABULARY) if t % 3 == len(self.taken) % 3}


def _outputs(harness: Harness) -> dict[tuple[int, int], list[Output]]:
    for number in range(REQUESTS):
        sampling = {"max_tokens": 5 + number, **KINDS[number % len(KINDS)]}
        masked = number % 4 == 1
        if masked:
            sampling["ignore_eos"] = False
        job = job_of(prompt_of(10 + 5 * number, number % 3), number, **sampling)
        mask = (lambda length=3 + number: Turns(length)) if masked else None
        harness.loop.accept(job, harness.loop.clock_us(), mask)
        harness.step()
    return harness.run()


def _told(outputs: dict[tuple[int, int], list[Output]], harness: Harness) -> Any:
    """Tokens, ends, likelihoods and counts, in whatever steps they came."""
    collected: dict[tuple[int, int], Any] = {}
    for step in harness.steps:
        for each in step.outputs:
            key = int.from_bytes(each.request, "big"), each.choice
            collected.setdefault(key, []).append(each)
    told = {}
    for key, mine in collected.items():
        scores = [one for each in mine for one in each.logprobs or []]
        prompt = [one.token for each in mine for one in each.prompt_logprobs or []]
        usage = mine[-1].usage
        told[key] = (
            tokens_of(mine), mine[-1].finish, usage.prompt_tokens, prompt,
            [(one.token, [token for token, _ in one.top]) for one in scores],
            usage.completion_tokens if key[1] == 0 and (key[0], 1) not in collected else None,
        )  # fmt: skip
    return told


@pytest.mark.parametrize("form", ["eager", "recorded", "few blocks", "native"])
def test_it_says_the_same(tmp_path: Path, form: str) -> None:
    save_model(tmp_path)
    options: dict[str, Any] = {"kernels": "torch", "speculate": "off", "running_max": 8}
    options |= {"kv_blocks": 14 if form == "few blocks" else 120, "block_size": 16}
    if form == "native":
        options |= {"kernels": "auto", "dtype": "auto", "block_size": 32}
    told = []
    makes: list[type[StepLoop]] = [StepLoop, AheadLoop]
    for make in makes:
        harness = Harness(tmp_path, make=make, step_tokens=48, **options)
        if form == "recorded":
            _record(harness)
        told.append(_told(_outputs(harness), harness))
        assert harness.pool.available == harness.pool.size
        assert (harness.scheduler.preemptions > 0) is (form == "few blocks")
    assert told[1] == told[0]
    assert len(told[0]) >= REQUESTS
    assert {each[1] for each in told[0].values()} == {"stop", "length"}


def _record(harness: Harness) -> None:
    eager = harness.runner.model
    assert isinstance(eager, EagerModel)
    eager.decoder.kernels = ON_CPU.__class__(
        decode=ON_CPU.decode,
        prefill=ON_CPU.prefill,
        decode_masks=True,
        prefill_masks=False,
        together=attend_by_definition,
    )
    with torch.inference_mode():
        harness.runner.model = RecordedModel(eager, lambda step: step, rows_max=8, mixed=(16, 48))


def test_logits_that_are_no_numbers_end_their_choice(tmp_path: Path) -> None:
    save_model(tmp_path)
    prompt = prompt_of(9)
    harness = Harness(tmp_path, make=AheadLoop, kernels="torch", kv_blocks=20, speculate="off")
    eager = harness.runner.model
    assert isinstance(eager, EagerModel)
    with torch.inference_mode():
        eager.decoder.weights.embedding[prompt[-1]] = float("nan")
    outputs = harness.run(job_of(prompt, 1), job_of([5, 6, 7], 2, max_tokens=4))
    assert outputs[1, 0][-1].finish == "error"
    assert len(tokens_of(outputs[2, 0])) == 4
