"""A job of several prompts is several to the engine and one to the gateway, however it ends."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from inference.contract.frames import Job
from inference.errors import JobRefused
from inference.node.prompts import Prompts
from tests.support.fleet import make_job, make_output, make_step, make_usage


class Taking:
    """Of an engine what this needs; it refuses the job of one prompt."""

    def __init__(self, refuses: list[int] | None = None) -> None:
        self.jobs: dict[bytes, Job] = {}
        self.cancelled: list[bytes] = []
        self.refuses = refuses

    def submit(self, job: Job) -> None:
        if job.tokens == self.refuses:
            raise JobRefused("too_long", "tokens: too many")
        self.jobs[job.request] = job

    def cancel(self, request: bytes) -> None:
        self.cancelled.append(request)


def made(refuses: list[int] | None = None) -> tuple[Taking, Any, Job]:
    engine = Taking(refuses)
    job = msgspec.structs.replace(make_job(n=2), tokens=[1, 2, 3], lengths=[2, 1], hashes=b"x")
    prompts: Any = Prompts(engine)  # type: ignore[arg-type]
    return engine, prompts, job


def test_parts_and_the_whole() -> None:
    engine, prompts, job = made()
    prompts.submit(job)
    first, second = engine.jobs.values()
    assert ([first.tokens, second.tokens], first.lengths, first.hashes) == ([[1, 2], [3]], [], b"")
    other = make_output(make_job().request)
    step = prompts.whole(
        make_step(
            make_output(first.request, usage=make_usage(2, 1, 1)),
            other,
            make_output(second.request, choice=1, usage=make_usage(1, 0, 5), finish="stop"),
            make_output(first.request, choice=1, usage=make_usage(2, 1, 3), finish="length"),
        )
    )
    assert [each.request for each in step.outputs] == [
        job.request, other.request, job.request, job.request,
    ]  # fmt: skip
    assert [each.choice for each in step.outputs] == [0, 0, 3, 1]
    usages = [each.usage for each in step.outputs]
    assert usages[2:] == [make_usage(3, 1, 6), make_usage(3, 1, 8)]
    prompts.cancel(job.request)
    assert engine.cancelled == [first.request, second.request]
    ends = [make_output(part.request, finish="cancelled") for part in (first, second)]
    prompts.whole(make_step(*ends))
    late = make_step(make_output(first.request))
    assert prompts.whole(late) is late


def test_a_refused_part_refuses_all() -> None:
    engine, prompts, job = made(refuses=[3])
    with pytest.raises(JobRefused):
        prompts.submit(job)
    assert set(engine.jobs) <= set(engine.cancelled)
    engine, prompts, job = made()
    prompts.submit(job)
    part = next(iter(engine.jobs))
    assert prompts.refused(part) == job.request
    assert set(engine.cancelled) == set(engine.jobs)


def test_one_prompt_passes_as_it_is() -> None:
    engine, prompts, _ = made()
    job = make_job()
    prompts.submit(job)
    assert engine.jobs[job.request] is job
    step = make_step(make_output(job.request))
    assert prompts.whole(step) is step
    prompts.cancel(job.request)
    assert engine.cancelled == [job.request]
    assert prompts.refused(job.request) == job.request
