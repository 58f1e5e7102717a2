"""The compact engine through its protocol: real thread, real tiny model."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from safetensors.torch import load_file, save_file

from inference.compact.options import CompactOptions
from inference.contract.blocks import split_hashes
from inference.engines.base import JobRefused, ModelError
from inference.engines.compact import Arrival, CompactEngine, clock_us
from tests.inference.compact.tiny import CONTEXT, job_of, prompt_of, save_model
from tests.inference.engines.sink import Sink

BLOCKS = 40
FOREVER = 200


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


async def test_usage_and_timing_add_up(folder: Path) -> None:
    async with serving(folder) as (engine, sink):
        engine.submit(job_of(prompt_of(40), n=2, max_tokens=5))
        outputs = await sink.finished(job_of([1]).request, choices=2)
        usage = outputs[-1].usage
        assert (usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens) == (40, 0, 10)
        for output in outputs:
            timing = output.timing
            parts = timing.queue_us + timing.prefill_us + timing.decode_us
            assert parts == timing.held_us
            assert min(timing.queue_us, timing.prefill_us, timing.decode_us) >= 0
        assert sink.steps[-1].kv_free_blocks == BLOCKS


async def test_an_end_token_is_counted_but_not_shown(folder: Path) -> None:
    async with serving(folder) as (engine, sink):
        engine.submit(job_of(prompt_of(40), number=1, max_tokens=6))
        said = [token for each in await sink.finished(job_of([1]).request) for token in each.tokens]
        stop = next(token for token in said[1:] if token != said[0])
        shown = said[: said.index(stop)]
        job = replace(job_of(prompt_of(40), number=2, max_tokens=6), stop_tokens=[stop])
        engine.submit(job)
        outputs = await sink.finished(job.request)
        assert [token for each in outputs for token in each.tokens] == shown
        assert outputs[-1].finish == "stop"
        assert outputs[-1].usage.completion_tokens == len(shown) + 1
        assert outputs[-1].usage.cached_tokens == 32


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


async def test_the_models_own_end_token(folder: Path) -> None:
    """A bias forces the end token; `ignore_eos` makes it an ordinary one."""
    async with serving(folder) as (engine, sink):
        forced: dict[str, Any] = {"logit_bias": {3: 1000.0}, "max_tokens": 3}
        engine.submit(job_of([9], number=1, ignore_eos=False, **forced))
        engine.submit(job_of([9], number=2, ignore_eos=True, **forced))
        ended = await sink.finished(job_of([1], number=1).request)
        ignored = await sink.finished(job_of([1], number=2).request)
        assert [(each.tokens, each.finish) for each in ended] == [([], "stop")]
        assert [each.tokens for each in ignored] == [[3], [3], [3]]


async def test_a_seed_repeats_in_any_company(folder: Path) -> None:
    async with serving(folder) as (engine, sink):
        wanted: dict[str, Any] = {"temperature": 1.0, "top_p": 0.9, "seed": 42, "max_tokens": 12}
        engine.submit(job_of(prompt_of(30), number=1, **wanted))
        alone = await sink.finished(job_of([1], number=1).request)
        for number in range(2, 12):
            engine.submit(job_of(prompt_of(7 * number, number), number, temperature=1.0))
        engine.submit(job_of(prompt_of(30), number=12, **wanted))
        crowded = await sink.finished(job_of([1], number=12).request)
        assert [each.tokens for each in crowded] == [each.tokens for each in alone]


async def test_salts_do_not_share_and_kv_events_match_the_snapshot(folder: Path) -> None:
    async with serving(folder) as (engine, sink):
        for number, salt in enumerate((b"alice", b"bob", b"alice")):
            engine.submit(job_of(prompt_of(40), number, salt, max_tokens=1))
            (output,) = await sink.finished(job_of([1], number).request)
            assert output.usage.cached_tokens == (32 if number == 2 else 0)
        found: set[bytes] = set()
        for events in sink.kv:
            found |= set(split_hashes(events.stored))
            found -= set(split_hashes(events.removed))
        snapshot = engine.kv_snapshot()
        assert snapshot.snapshot
        assert snapshot.seq == sink.kv[-1].seq == len(sink.kv)
        assert set(split_hashes(snapshot.stored)) == found
        assert len(found) == 4


async def test_cancel_while_waiting(folder: Path) -> None:
    async with serving(folder, running_max=2) as (engine, sink):
        running, waiting = job_of([5], 1, n=2, max_tokens=FOREVER), job_of(prompt_of(60), 2)
        engine.submit(running)
        await sink.until(lambda: any(step.running == 2 for step in sink.steps))
        engine.submit(waiting)
        await sink.until(lambda: sink.steps[-1].waiting == 1)
        engine.cancel(waiting.request)
        (output,) = await sink.finished(waiting.request)
        assert (output.finish, output.tokens) == ("cancelled", [])
        assert output.usage.completion_tokens == 0
        assert sink.finishes(running.request) == []


async def test_cancel_in_the_middle_of_a_prefill(folder: Path) -> None:
    async with serving(folder, step_tokens=2, running_max=1) as (engine, sink):
        job = job_of(prompt_of(CONTEXT - 2), max_tokens=1)
        engine.submit(job)
        await sink.until(lambda: bool(sink.steps) and sink.steps[-1].running == 1)
        engine.cancel(job.request)
        (output,) = await sink.finished(job.request)
        assert (output.finish, output.usage.completion_tokens) == ("cancelled", 0)
        assert sink.steps[-1].kv_free_blocks == BLOCKS


async def test_cancel_while_decoding_ends_every_choice_once(folder: Path) -> None:
    async with serving(folder) as (engine, sink):
        job = job_of(prompt_of(20), n=3, max_tokens=FOREVER)
        engine.submit(job)
        await sink.until(lambda: len(sink.outputs[job.request]) > 6)
        steps_before = len(sink.steps)
        engine.cancel(job.request)
        engine.cancel(job.request)
        outputs = await sink.finished(job.request, choices=3)
        assert sink.finishes(job.request) == ["cancelled"] * 3
        assert sink.steps[-1].kv_free_blocks == BLOCKS
        # One step may have been under way, and its outputs come before the end.
        assert len(sink.steps) - steps_before <= 3
        assert outputs[-1].usage.completion_tokens == sum(len(each.tokens) for each in outputs)


async def test_cancel_of_what_is_finishing_changes_nothing(folder: Path) -> None:
    async with serving(folder) as (engine, sink):
        job = job_of(prompt_of(20), max_tokens=1)
        engine.submit(job)
        await sink.finished(job.request)
        engine.cancel(job.request)
        engine.cancel(b"\xff" * 16)
        other = job_of(prompt_of(20), 2, max_tokens=2)
        engine.submit(other)
        await sink.finished(other.request)
        assert sink.finishes(job.request) == ["length"]


async def test_deadline(folder: Path) -> None:
    async with serving(folder, step_tokens=1, running_max=1) as (engine, sink):
        job = replace(job_of(prompt_of(20), max_tokens=FOREVER), deadline_ms=30)
        engine.submit(job)
        outputs = await sink.finished(job.request)
        assert outputs[-1].finish == "cancelled"
        assert outputs[-1].timing.held_us >= 30_000


async def test_close_ends_what_runs(folder: Path) -> None:
    async with serving(folder) as (engine, sink):
        job = job_of(prompt_of(20), n=2, max_tokens=FOREVER)
        engine.submit(job)
        await sink.until(lambda: bool(sink.outputs[job.request]))
        await engine.close()
        await sink.finished(job.request, choices=2)
        assert sink.finishes(job.request) == ["cancelled", "cancelled"]


async def test_overload_and_duplicates_are_refused(folder: Path) -> None:
    async with serving(folder, running_max=1) as (engine, sink):
        job = job_of([5], 1, max_tokens=FOREVER)
        engine.submit(job)
        with pytest.raises(JobRefused, match="request") as duplicate:
            engine.submit(job)
        with pytest.raises(JobRefused, match="credits") as full:
            engine.submit(job_of([5], 2))
        assert (duplicate.value.code, full.value.code) == ("bad_job", "full")
        engine.cancel(job.request)
        await sink.finished(job.request)
        engine.submit(job_of([5], 2))
        await sink.finished(job_of([5], 2).request)


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
