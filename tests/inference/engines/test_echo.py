"""The echo engine: predictable tokens, honest usage, pacing, cancel."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from inference.contract.frames import Job
from inference.engines.echo import EchoEngine, EchoOptions
from inference.errors import JobRefused, ModelError
from tests.inference.compact.tiny import job_of
from tests.inference.engines.sink import Sink

PROMPT = [11, 12, 13]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "tiny"
    path.mkdir()
    config = {"vocab_size": 100, "max_position_embeddings": 50, "model_type": "llama"}
    (path / "config.json").write_text(json.dumps(config))
    return path


@asynccontextmanager
async def serving(folder: Path, options: EchoOptions) -> AsyncIterator[tuple[EchoEngine, Sink]]:
    engine, sink = EchoEngine(folder, options), Sink()
    await engine.start(sink)
    try:
        yield engine, sink
    finally:
        await engine.close()


def _tokens(sink: Sink, job: Job, choice: int = 0) -> list[int]:
    outputs = [each for each in sink.outputs[job.request] if each.choice == choice]
    return [token for each in outputs for token in each.tokens]


async def test_all_at_once(folder: Path) -> None:
    async with serving(folder, EchoOptions()) as (engine, sink):
        job = job_of(PROMPT, n=2, max_tokens=7)
        engine.submit(job)
        outputs = await sink.finished(job.request, choices=2)
        assert len(outputs) == 2
        assert _tokens(sink, job) == _tokens(sink, job, 1) == [11, 12, 13, 11, 12, 13, 11]
        usage = outputs[-1].usage
        assert (usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens) == (3, 0, 14)


async def test_one_token_a_step(folder: Path) -> None:
    async with serving(folder, EchoOptions(tokens_per_step=1)) as (engine, sink):
        job = job_of(PROMPT, max_tokens=5)
        engine.submit(job)
        outputs = await sink.finished(job.request)
        assert [each.tokens for each in outputs] == [[11], [12], [13], [11], [12]]
        assert [each.usage.completion_tokens for each in outputs] == [1, 2, 3, 4, 5]


async def test_pace(folder: Path) -> None:
    async with serving(folder, EchoOptions(tokens_per_s=100.0)) as (engine, sink):
        started = time.monotonic()
        job = job_of(PROMPT, max_tokens=10)
        engine.submit(job)
        await sink.finished(job.request)
        assert time.monotonic() - started >= 0.09


async def test_context_ends_it(folder: Path) -> None:
    async with serving(folder, EchoOptions()) as (engine, sink):
        job = job_of(PROMPT * 16, max_tokens=1000)
        engine.submit(job)
        await sink.finished(job.request)
        assert len(_tokens(sink, job)) == 2


async def test_cancel_deadline_and_close(folder: Path) -> None:
    async with serving(folder, EchoOptions(tokens_per_s=50.0)) as (engine, sink):
        jobs = [job_of(PROMPT, number, max_tokens=40) for number in range(3)]
        jobs[1] = replace(jobs[1], deadline_ms=60)
        for job in jobs:
            engine.submit(job)
        await sink.until(lambda: bool(sink.outputs[jobs[0].request]))
        engine.cancel(jobs[0].request)
        engine.cancel(jobs[0].request)
        await sink.finished(jobs[0].request)
        await sink.finished(jobs[1].request)
        await engine.close()
        for job in jobs:
            await sink.finished(job.request)
            assert sink.finishes(job.request) == ["cancelled"]
            assert len(_tokens(sink, job)) < 40


async def test_refusals(folder: Path) -> None:
    async with serving(folder, EchoOptions(credits=1, tokens_per_s=1.0)) as (engine, _):
        engine.submit(job_of(PROMPT, 1))
        with pytest.raises(JobRefused, match="credits"):
            engine.submit(job_of(PROMPT, 2))
        with pytest.raises(JobRefused, match="request"):
            engine.submit(job_of(PROMPT, 1))


async def test_no_configuration(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"config\.json"):
        EchoEngine(tmp_path)


def test_options_are_checked() -> None:
    with pytest.raises(ValueError, match="tokens_per_s"):
        EchoOptions(tokens_per_s=-1.0)
