"""What holds of every engine, whatever it is made of: ends, cancels, credits, refusals, facts."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from inference.contract.capabilities import Capability
from inference.contract.frames import Job, Output
from inference.errors import JobRefused
from tests.inference.conformance.served import Served
from tests.inference.conformance.subjects import CREDITS, all_subjects

# Of jobs to cancel, where one may end first.
TRIES = 5
WORKS = (Capability.TOKENS, Capability.TEXT, Capability.EMBEDDINGS)


async def _begun(served: Served, job: Job) -> None:
    """Until something of its answer is here."""
    await served.sink.until(
        lambda: any(each.delivered for each in served.sink.outputs[job.request])
    )


@all_subjects()
async def test_the_declared_facts(served: Served) -> None:
    facts = served.engine.facts
    assert frozenset(facts.capabilities) == served.subject.capabilities
    assert len(facts.capabilities) == len(set(facts.capabilities))
    assert len(served.subject.capabilities.intersection(WORKS)) == 1
    assert facts.credits == CREDITS
    assert min(facts.context_window, facts.block_size) >= 1
    assert bool(facts.dimensions) == (Capability.EMBEDDINGS in facts.capabilities)


@all_subjects()
async def test_a_job_ends_once_and_late_cancels_change_nothing(served: Served) -> None:
    job = served.any_job()
    await served.run(job)
    ends = served.sink.finishes(job.request)
    served.engine.cancel(job.request)
    served.engine.cancel(b"\xff" * 16)
    await served.run(served.any_job())
    assert served.sink.finishes(job.request) == ends
    assert ends in (["length"], ["stop"])


async def _cancel(served: Served, *, begun: bool) -> list[Output]:
    """Cancel a job, or another where an engine in its own process had already finished it."""
    for _ in range(TRIES):
        job = served.any_job(endless=True)
        served.submit(job)
        if begun:
            await _begun(served, job)
        served.engine.cancel(job.request)
        served.engine.cancel(job.request)
        outputs = await served.finished(job)
        if served.sink.finishes(job.request) == ["cancelled"]:
            return outputs
    raise AssertionError(f"none of {TRIES} jobs was cancelled")


@all_subjects()
async def test_a_cancelled_job_ends_once_and_gives_its_credit_back(served: Served) -> None:
    for _ in range(CREDITS + 1):
        outputs = await _cancel(served, begun=True)
        assert outputs[-1].usage.prompt_tokens > 0


@all_subjects()
async def test_a_cancel_before_anything_was_made(served: Served) -> None:
    await _cancel(served, begun=False)


@all_subjects()
async def test_a_deadline_is_a_cancel(served: Served) -> None:
    # Native code makes the 300 tokens of an endless job in less than 30 ms.
    outputs = await served.run(served.any_job(endless=True, deadline_ms=10))
    assert outputs[-1].finish == "cancelled"


@all_subjects()
async def test_more_jobs_than_credits(served: Served) -> None:
    jobs = [served.any_job(endless=True) for _ in range(CREDITS)]
    served.submit(*jobs)
    with pytest.raises(JobRefused, match="credits") as full:
        served.submit(served.any_job())
    with pytest.raises(JobRefused, match="request") as duplicate:
        served.submit(jobs[0])
    assert (full.value.code, duplicate.value.code) == ("full", "bad_job")
    served.engine.cancel(jobs[0].request)
    await served.finished(jobs[0])
    await served.run(served.any_job())


@all_subjects()
async def test_what_no_engine_takes_is_refused_by_field(served: Served) -> None:
    job = served.any_job()
    kinds = {
        Capability.TOKENS: replace(job, tokens=[5, 6], inputs=[], request_json=b""),
        Capability.EMBEDDINGS: replace(job, tokens=[], inputs=[[5]], request_json=b""),
    }
    foreign = [made for kind, made in kinds.items() if kind not in served.subject.capabilities]
    for bad, code in [
        (replace(job, model="other"), "unknown_model"),
        (replace(job, deadline_ms=0), "bad_job"),
        *((made, "bad_job") for made in foreign),
    ]:
        with pytest.raises(JobRefused, match="model|deadline_ms|inputs|request_json|tokens") as no:
            served.submit(bad)
        assert no.value.code == code
    await served.run(job)


@all_subjects()
async def test_closing_ends_what_runs(served: Served) -> None:
    running, fresh = served.any_job(endless=True), served.any_job(endless=True)
    served.submit(running)
    await _begun(served, running)
    served.submit(fresh)
    for _ in range(2):
        await served.engine.close()
        await served.finished(running)
        # Cancelled, unless an engine in another process had made its last token already.
        over = {"cancelled", "length"} if served.subject.processes else {"cancelled"}
        assert len(served.sink.finishes(running.request)) == 1
        (end,) = served.sink.finishes(fresh.request)
        assert end in over
