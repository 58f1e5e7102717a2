"""What is the compact engine's own; the contract of all engines is in `conformance`."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from safetensors.torch import load_file, save_file

from inference.compact.options import CompactOptions
from inference.compact.run.ahead import AheadLoop
from inference.compact.run.loop import StepLoop
from inference.contract.blocks import split_hashes
from inference.engines.base import clock_us
from inference.engines.compact import Arrival, CompactEngine
from inference.errors import JobRefused, ModelError
from tests.inference.compact.tiny import CONTEXT, job_of, prompt_of, save_model
from tests.inference.engines.sink import Sink

BLOCKS = 40


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("engine") / "tiny"
    save_model(path)
    yield path


@asynccontextmanager
async def serving(folder: Path, **options: Any) -> AsyncIterator[tuple[CompactEngine, Sink]]:
    defaults: dict[str, Any] = {
        "dtype": "float32",
        "device": "cpu",
        "kv_blocks": BLOCKS,
        "block_size": 16,
    }
    engine = CompactEngine(folder, CompactOptions(**{**defaults, **options}))
    sink = Sink()
    await engine.start(sink)
    try:
        yield engine, sink
    finally:
        await engine.close()


async def test_facts_are_known_before_start(folder: Path) -> None:
    engine = CompactEngine(folder, CompactOptions(kv_blocks=7, dtype="float32", device="cpu"))
    facts = engine.facts
    assert (facts.engine, facts.model, facts.dtype, facts.device) == (
        "compact", "tiny", "float32", "cpu",
    )  # fmt: skip
    assert (facts.context_window, facts.kv_blocks, facts.block_size) == (CONTEXT, 7, 32)
    await engine.close()


@pytest.mark.parametrize(
    ("overlap", "device", "loop"),
    [
        ("auto", "cpu", StepLoop), ("auto", "cuda", AheadLoop), ("off", "cuda", StepLoop),
        ("on", "cpu", AheadLoop),
    ],
)  # fmt: skip
async def test_a_gpu_is_given_steps_ahead_and_a_cpu_is_not(
    folder: Path, overlap: str, device: str, loop: type[StepLoop]
) -> None:
    async with serving(folder, overlap=overlap) as (engine, _):
        shape, placement = engine._shape, engine._placement
        runner = engine.load(folder, shape, placement)
        engine._placement = dataclasses.replace(placement, device=device)
        assert type(engine._step_loop(runner, None)) is loop


@pytest.mark.parametrize("block_size", [1, 2])
async def test_eviction_with_blocks_so_small_that_the_warm_up_fills_some(
    folder: Path, block_size: int
) -> None:
    async with serving(folder, block_size=block_size) as (engine, sink):
        for number in range(1, 5):
            job = job_of(prompt_of(30, number), number=number, max_tokens=4)
            engine.submit(job)
            await sink.finished(job.request)
        assert sink.kv[0].seq == 1
        stored = {block for kv in sink.kv for block in split_hashes(kv.stored)}
        removed = {block for kv in sink.kv for block in split_hashes(kv.removed)}
        assert removed <= stored
        assert set(split_hashes(engine.kv_snapshot().stored)) == stored - removed


async def test_a_prompt_that_never_fits_the_pool_is_refused(folder: Path) -> None:
    engine = CompactEngine(folder, CompactOptions(kv_blocks=2, dtype="float32", device="cpu"))
    with pytest.raises(JobRefused, match="cache") as refused:
        engine.submit(job_of(prompt_of(60), max_tokens=5))
    assert refused.value.code == "too_long"


async def test_bad_weights_surface_at_start(tmp_path: Path) -> None:
    save_model(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    del tensors["model.norm.weight"]
    save_file(tensors, tmp_path / "model.safetensors")
    engine = CompactEngine(tmp_path, CompactOptions(dtype="float32", device="cpu", kv_blocks=4))
    with pytest.raises(ModelError, match=r"model\.norm\.weight"):
        await engine.start(Sink())
    await engine.close()


async def test_death_is_surfaced(folder: Path) -> None:
    """A token id that slips past every check breaks the embedding, and the node must hear it."""
    async with serving(folder) as (engine, sink):
        job = job_of([5], max_tokens=1)
        engine._inbox.put(Arrival(replace(job, tokens=[10**6]), clock_us()))
        await sink.until(lambda: bool(sink.deaths))
        assert isinstance(sink.deaths[0], IndexError)
