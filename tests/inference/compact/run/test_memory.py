"""The KV cache of a GPU takes what is left beside weights and the largest step; a step that finds
no memory says so. The device's figures are made up here; the steps are computed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import torch

from inference.compact.config.shape import ModelShape, read_shape
from inference.compact.load.placement import KvRoom, Placement, choose_placement, defaults_for
from inference.compact.load.weights import load_weights
from inference.compact.options import GPU_DEFAULTS, MEBIBYTE, CompactOptions
from inference.compact.run.memory import largest_step
from inference.compact.run.runner import Runner
from inference.compact.schedule.scheduler import Chunk
from inference.errors import ModelError
from tests.inference.compact.tiny import (
    CONTEXT,
    Harness,
    continuation,
    job_of,
    prompt_of,
    save_model,
    tokens_of,
)

TOTAL, IN_USE, PEAK = 100 * MEBIBYTE, 30 * MEBIBYTE, 7 * MEBIBYTE
PLACEMENT = Placement(
    device="cpu", dtype="float32", block_size=16, kv_blocks=1, threads=None,
    kv_room=KvRoom(share=0.9, step_tokens=200, running_max=12),
)  # fmt: skip


@dataclass
class Figures:
    """A device of which so much is in use."""

    in_use: int = IN_USE
    logits: list[object] = field(default_factory=list)

    def peak(self, step: Callable[[], object]) -> int:
        """Compute the step once."""
        self.logits.append(step())
        return PEAK

    def free_and_total(self) -> tuple[int, int]:
        """As it was made."""
        return TOTAL - self.in_use, TOTAL


@dataclass
class ShortOfMemory:
    """A model without memory for its first steps."""

    failures: int
    steps: int = 0

    def forward(self, chunks: list[Chunk], drawn: torch.Tensor | None = None) -> torch.Tensor:
        """One row of each chunk."""
        self.steps += 1
        if self.steps <= self.failures:
            raise torch.OutOfMemoryError("tried to allocate 2.00 GiB")
        return torch.zeros(len(chunks), 8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("memory")


@pytest.fixture(scope="module")
def oracle(folder: Path) -> torch.nn.Module:
    return save_model(folder)


@pytest.fixture
def shape(folder: Path, oracle: torch.nn.Module) -> ModelShape:
    return read_shape(folder)


def _loaded(folder: Path, shape: ModelShape, memory: Figures) -> Runner:
    with torch.inference_mode():
        return Runner.over(load_weights(folder, shape, PLACEMENT), shape, PLACEMENT, memory)


def test_the_cache_takes_what_is_left(
    folder: Path, shape: ModelShape, oracle: torch.nn.Module
) -> None:
    memory = Figures()
    runner = _loaded(folder, shape, memory)
    (tokens,) = memory.logits
    assert isinstance(tokens, list) and len(tokens) == 12
    left = int(0.9 * TOTAL) - IN_USE - PEAK
    assert runner.placement.kv_blocks == left // PLACEMENT.block_bytes(shape)
    harness = Harness(folder, kernels="torch", kv_blocks=20, block_size=16)
    harness.loop.model = runner
    prompt = prompt_of(90)
    outputs = harness.run(job_of(prompt, 1, max_tokens=20))
    assert tokens_of(outputs[1, 0]) == continuation(oracle, prompt, 20)


def test_a_device_without_room_is_refused_with_its_figures(folder: Path, shape: ModelShape) -> None:
    with pytest.raises(ModelError, match=r"gpu_memory: 0\.9 leaves .* 85 in use and 7 for a step"):
        _loaded(folder, shape, Figures(in_use=85 * MEBIBYTE))


@pytest.mark.parametrize("step_tokens", [12, 100, CONTEXT + 200])
def test_the_largest_step_is_full(shape: ModelShape, step_tokens: int) -> None:
    chunks = largest_step(shape, KvRoom(0.9, step_tokens, 12), 16)
    assert sum(chunk.count for chunk in chunks) == step_tokens
    assert [chunk.count for chunk in chunks[:11]] == [1] * 11
    assert all(chunk.start + chunk.count in (1, CONTEXT) for chunk in chunks)
    assert len(chunks) == (13 if step_tokens > CONTEXT else 12)


def test_what_is_asked_for_stands(shape: ModelShape) -> None:
    asked = CompactOptions(device="cpu", dtype="float32", kv_bytes=MEBIBYTE)
    placement = choose_placement(shape, asked)
    assert placement.kv_room is None
    assert placement.kv_blocks == MEBIBYTE // placement.block_bytes(shape)
    assert choose_placement(shape, replace(asked, kv_blocks=5)).kv_blocks == 5
    assert choose_placement(shape, replace(asked, kv_bytes=None)).kv_blocks > 5


def test_defaults_follow_the_device() -> None:
    assert defaults_for({"device": "cpu"}) == {}
    assert CompactOptions(**GPU_DEFAULTS).running_max == 256


@pytest.mark.parametrize("share", [0.0, -1.0, 1.01, float("nan")])
def test_a_share_is_a_share(share: float) -> None:
    with pytest.raises(ValueError, match="gpu_memory"):
        CompactOptions(gpu_memory=share)


def test_a_step_without_memory_is_tried_again(
    shape: ModelShape, caplog: pytest.LogCaptureFixture
) -> None:
    model = ShortOfMemory(failures=1)
    runner = Runner(model, PLACEMENT)
    chunks = largest_step(shape, KvRoom(0.9, 40, 3), 16)
    assert len(runner.run(chunks)) == 3
    assert model.steps == 2
    assert "tried again: tried to allocate 2.00 GiB" in caplog.text


def test_a_step_that_never_finds_memory_says_what_to_do(shape: ModelShape) -> None:
    runner = Runner(ShortOfMemory(failures=2), PLACEMENT)
    chunks = largest_step(shape, KvRoom(0.9, 40, 3), 16)
    with pytest.raises(ModelError, match=r"40 tokens of 3 requests .* --gpu-memory, --kv-mib"):
        runner.run(chunks)
