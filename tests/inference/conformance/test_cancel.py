"""A cancel in every state of a request: one end per choice, and its blocks are free soon after."""

from __future__ import annotations

import asyncio
from itertools import takewhile

from inference.contract.capabilities import Capability
from inference.contract.frames import Job
from tests.inference.conformance.served import Served
from tests.inference.conformance.subjects import declaring, queueing

FOREVER = 300
# An engine in another process may end a job while this one gets no time to cancel it.
TRIES_MAX = 5
LONG_PROMPT = 450
# Steps after a cancel that still show its blocks in use; the step under way is one.
REPORTS_UNTIL_FREE = 2


async def _cancel(served: Served, job: Job) -> None:
    """Cancel the only job; its blocks come free soon."""
    served.engine.cancel(job.request)
    # What the engine had made by then may still lie in the event loop's queue.
    await asyncio.sleep(0)
    before = len(served.sink.steps)
    await served.finished(job)
    await served.idle()
    blocks = served.engine.facts.kv_blocks
    late = takewhile(lambda step: step.kv_free_blocks < blocks, served.sink.steps[before:])
    assert len(list(late)) <= REPORTS_UNTIL_FREE


async def _held_back(served: Served, running: Job) -> None:
    """Until the engine says that a job waits, or the running one has begun to end."""
    await served.sink.until(
        lambda: bool(served.sink.steps[-1].waiting or served.sink.finishes(running.request))
    )


@queueing()
async def test_queued(served: Served) -> None:
    for _ in range(TRIES_MAX):
        running, waiting = served.job(20, n=4, max_tokens=FOREVER), served.job(60)
        served.submit(running)
        await served.decoding(running)
        served.submit(waiting)
        await _held_back(served, running)
        served.engine.cancel(waiting.request)
        outputs = await served.finished(waiting)
        # An engine in another process may have made its last token meanwhile.
        if not served.sink.finishes(running.request):
            break
        await served.finished(running)
    (output,) = outputs
    assert (output.finish, output.tokens) == ("cancelled", [])
    assert output.usage.completion_tokens == 0


@declaring(Capability.CANCEL)
async def test_in_the_middle_of_a_prefill(served: Served) -> None:
    job = served.job(LONG_PROMPT, max_tokens=FOREVER)
    served.submit(job)
    if served.subject.prefills_in_parts:
        await served.sink.until(lambda: any(step.running == 1 for step in served.sink.steps))
        assert not served.sink.outputs[job.request]
    await _cancel(served, job)
    outputs = served.sink.outputs[job.request]
    assert outputs[-1].finish == "cancelled"
    assert len(outputs) == 1 or not served.subject.prefills_in_parts


@declaring(Capability.CANCEL, Capability.N)
async def test_decoding_every_choice_ends_once(served: Served) -> None:
    for _ in range(TRIES_MAX):
        job = served.job(20, n=3, max_tokens=FOREVER)
        served.submit(job)
        await served.decoding(job)
        served.engine.cancel(job.request)
        await _cancel(served, job)
        outputs = served.sink.outputs[job.request]
        if served.sink.finishes(job.request) != ["length"] * 3:
            break
    assert served.sink.finishes(job.request) == ["cancelled"] * 3
    assert outputs[-1].usage.completion_tokens == sum(len(each.tokens) for each in outputs)


@declaring(Capability.CANCEL)
async def test_finishing(served: Served) -> None:
    """The cancel crosses the last token on its way."""
    job = served.job(20, max_tokens=3)
    served.submit(job)
    await served.decoding(job)
    await _cancel(served, job)
    assert served.sink.finishes(job.request) in (["length"], ["cancelled"])


@declaring(Capability.DEADLINE)
async def test_a_deadline_is_a_cancel(served: Served) -> None:
    job = served.job(20, max_tokens=FOREVER, deadline_ms=5)
    outputs = await served.run(job)
    assert outputs[-1].finish == "cancelled"
    assert outputs[-1].timing.held_us >= 5_000
    await served.idle()
