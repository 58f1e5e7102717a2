"""The inputs of recorded decode steps: right for any batch, padding harmless, the rest eager.

Recording itself needs a GPU. On a CPU a recording calls the step again on the same fixed inputs,
which is what a replayed graph does.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from inference.compact.run.eager import EagerModel
from inference.compact.run.graphs import (
    CudaRecorder,
    RecordedModel,
    Recorder,
    Step,
    can_record,
    recorded_if_possible,
)
from inference.compact.schedule.scheduler import Chunk
from tests.inference.compact.attention.together import attend_by_definition
from tests.inference.compact.shapes import SHAPES
from tests.inference.compact.tiny import (
    Harness,
    collect,
    continuation,
    job_of,
    prompt_of,
    save_model,
    tokens_of,
)


class Counted(EagerModel):
    """Counts the steps that are not replayed."""

    steps = 0

    def forward(self, chunks: list[Chunk], drawn: torch.Tensor | None = None) -> torch.Tensor:
        self.steps += 1
        return super().forward(chunks, drawn)


def _imitated(step: Step) -> Step:
    """Steps into memory of their own, as a graph has it."""
    result = step().clone()
    return lambda: result.copy_(step())


def _stuck(step: Step) -> Step:
    """Always what it said first."""
    result = step().clone()
    return lambda: result


def _recorder(device: str, replayed: list[int]) -> Recorder:
    """The device's own, counting rows."""
    inner = CudaRecorder() if device == "cuda" else _imitated

    def record(step: Step) -> Step:
        replay = inner(step)

        def counted() -> torch.Tensor:
            result = replay()
            replayed.append(len(result))
            return result

        return counted

    return record


def _plain(harness: Harness) -> EagerModel:
    """The harness's model without its recordings."""
    model = harness.runner.model
    plain = model.eager if isinstance(model, RecordedModel) else model
    assert isinstance(plain, EagerModel)
    return plain


@pytest.mark.parametrize("name", ["llama", "qwen2-window"])
def test_replayed_steps_say_the_same(name: str, device: str, tmp_path: Path) -> None:
    kind, overrides = SHAPES[name]
    oracle = save_model(tmp_path, kind, **overrides)
    size = {"kv_blocks": 80, "block_size": 16, "step_tokens": 100, "running_max": 11}
    harness = Harness(tmp_path, device=device, **size)
    plain = _plain(harness)
    replayed: list[int] = []
    with torch.inference_mode():
        eager = Counted(plain.decoder, plain.upload)
        harness.runner.model = RecordedModel(eager, _recorder(device, replayed), 9, mixed=())
    prompts = [prompt_of(3 + 11 * number, seed=number) for number in range(11)]
    outputs = harness.run(*(job_of(p, n, max_tokens=3 + 3 * n) for n, p in enumerate(prompts)))
    for number, prompt in enumerate(prompts):
        assert tokens_of(outputs[number, 0]) == continuation(oracle, prompt, 3 + 3 * number)
    # Nine rows are rounded up to sixteen, so up to that many are replayed; without a kernel for
    # whole steps prompts never are.
    assert set(replayed) == {1, 2, 3, 4, 5, 6, 7, 8, 16}
    assert eager.steps + len(replayed) == len(harness.steps)
    assert eager.steps > 0


@pytest.mark.parametrize("speculate", ["off", "on"])
@pytest.mark.parametrize("name", ["llama", "qwen2-window", "mixtral"])
def test_replayed_mixed_steps_say_the_same(name: str, speculate: str, tmp_path: Path) -> None:
    """Prompts in chunks, behind prefixes and preempted, and drafts, beside decoding rows."""
    kind, overrides = SHAPES[name]
    oracle = save_model(tmp_path, kind, **overrides)
    harness = Harness(
        tmp_path, kv_blocks=21, block_size=16, step_tokens=50, running_max=8, speculate=speculate
    )
    plain = _plain(harness)
    plain.decoder.kernels = replace(plain.decoder.kernels, together=attend_by_definition)
    replayed: list[int] = []
    with torch.inference_mode():
        eager = Counted(plain.decoder, plain.upload)
        recorder = _recorder("cpu", replayed)
        harness.runner.model = RecordedModel(eager, recorder, rows_max=6, mixed=(8, 24, 40))
    shared = prompt_of(33)
    prompts = [shared + prompt_of(1 + 11 * number, seed=number) for number in range(7)]
    for number, prompt in enumerate(prompts):
        harness.accept(job_of(prompt, number, max_tokens=30))
        for _ in range(1 + 2 * number % 3):
            harness.step()
    harness.run(job_of(prompt_of(12), 7, max_tokens=3), job_of(prompt_of(7), 8, max_tokens=3))
    outputs = collect(harness.steps)
    for number, prompt in enumerate(prompts):
        assert tokens_of(outputs[number, 0]) == continuation(oracle, prompt, 30)
    assert sum(step.preemptions for step in harness.steps) > 0
    assert (sum(step.drafted for step in harness.steps) > 0) == (speculate == "on")
    # Of logit rows: mixed steps have room for as many as they have spans.
    assert {24, 40} <= set(replayed)
    assert 0 < eager.steps < len(replayed)


def test_a_device_that_cannot_record_computes_eagerly(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse() -> Recorder:
        raise RuntimeError("operation not permitted when stream is capturing")

    save_model(tmp_path)
    plain = _plain(Harness(tmp_path, kv_blocks=8, block_size=16))
    with torch.inference_mode():
        assert not can_record(plain.decoder)
        assert recorded_if_possible(plain, refuse) is plain
    assert "steps are not recorded, which is slower: operation not permitted" in caplog.text


def test_recordings_that_say_something_else_are_not_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    save_model(tmp_path)
    plain = _plain(Harness(tmp_path, kv_blocks=20, block_size=16))
    with torch.inference_mode():
        assert isinstance(recorded_if_possible(plain, lambda: _imitated), RecordedModel)
        assert recorded_if_possible(plain, lambda: _stuck) is plain
    assert "steps are not recorded, which is slower: replayed ones" in caplog.text


def test_spare_rows_touch_no_block(tmp_path: Path, device: str) -> None:
    save_model(tmp_path)
    plain = _plain(Harness(tmp_path, device=device, kv_blocks=8, block_size=16))
    with torch.inference_mode():
        # A padding token's embedding is zero, and so would be its keys and values.
        plain.decoder.weights.embedding[0] = 1.0
        RecordedModel(plain, _recorder(device, []), rows_max=4)
        blocks = plain.decoder.cache.blocks
        assert not bool(blocks[:, :-1].any())
        assert bool(blocks[:, -1].any())
