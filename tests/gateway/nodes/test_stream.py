"""What a step's outputs meet: the reader who takes them at once, or has to be woken; and that the
short check of the usual output never lets pass what the full one refuses.
"""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.gateway.nodes.checks import DURATION_US_MAX
from controlplane.gateway.nodes.jobs import OpenJob
from controlplane.gateway.nodes.measured.account import NodeAccount
from controlplane.gateway.nodes.stream import JobStream, NodeLost
from inference.contract.frames import (
    Job,
    ModelOffer,
    Output,
    Timing,
    Usage,
)
from inference.contract.parts import TokenLogprob, Vectors
from tests.support.fleet import MODEL, VOCAB_SIZE, make_job, make_output, make_usage

MAX_TOKENS = 6


def make_stream(*, n: int = 1) -> tuple[Job, JobStream]:
    """A stream of a job that no node has."""
    job = make_job(max_tokens=MAX_TOKENS, n=n)
    return job, JobStream(job, node="n", cancel=lambda request: None)


async def reading(
    stream: JobStream, taken: list[list[Output]], *, takes: bool = True
) -> asyncio.Task[list[Output]]:
    """A reader that waits for a batch behind a sink."""

    def sink(outputs: list[Output]) -> bool:
        taken.append(list(outputs))
        return takes

    task = asyncio.create_task(stream.batch(sink))
    await asyncio.sleep(0)
    return task


async def test_a_sink_takes_the_outputs_of_a_step_together_and_wakes_no_one() -> None:
    job, stream = make_stream(n=2)
    taken: list[list[Output]] = []
    task = await reading(stream, taken)
    first, second = (make_output(job.request, choice=choice) for choice in (0, 1))
    stream.push(first)
    stream.push(second)
    stream.flush()
    stream.flush()
    await asyncio.sleep(0)
    assert (taken, task.done()) == ([[first, second]], False)
    stream.lose("over")
    with pytest.raises(NodeLost):
        await task


async def test_what_a_sink_does_not_take_is_read_before_all_that_follows() -> None:
    job, stream = make_stream()
    taken: list[list[Output]] = []
    task = await reading(stream, taken, takes=False)
    outputs = [make_output(job.request, usage=make_usage(completion=n)) for n in (1, 2)]
    for output in outputs:
        stream.push(output)
        stream.flush()
    assert await task == outputs
    assert taken == [outputs[:1]], "the reader is on its way, and comes first"


async def test_the_end_wakes_a_reader_whose_sink_took_the_last_output() -> None:
    job, stream = make_stream()
    taken: list[list[Output]] = []
    task = await reading(stream, taken)
    stream.push(make_output(job.request, finish="stop"))
    stream.flush()
    assert (await task, len(taken)) == ([], 1)


async def test_an_answer_that_ended_in_the_sink_is_not_lost_with_its_node() -> None:
    """Between the sink's turn and the reader's the link may break, or a frame be distrusted."""
    job, stream = make_stream()

    def sink(outputs: list[Output]) -> bool:
        stream.leave()
        return True

    task = asyncio.create_task(stream.batch(sink))
    await asyncio.sleep(0)
    stream.push(make_output(job.request))
    stream.flush()
    stream.lose("the link broke")
    assert await task == []


async def test_what_a_sink_raises_reaches_its_reader_alone() -> None:
    job, stream = make_stream()

    def sink(outputs: list[Output]) -> bool:
        raise KeyError("a fault of the writer")

    task = asyncio.create_task(stream.batch(sink))
    await asyncio.sleep(0)
    stream.push(make_output(job.request))
    stream.flush()
    with pytest.raises(KeyError):
        await task


figures = st.sampled_from([-1, 0, 1, 2, 3, 4, 5, 6, 7, 8, VOCAB_SIZE - 1, VOCAB_SIZE, 2**40])
durations = st.sampled_from([-1, 0, 7, DURATION_US_MAX, DURATION_US_MAX + 1])
usages = st.builds(
    Usage,
    prompt_tokens=st.sampled_from([3, 4, 5]),
    cached_tokens=st.sampled_from([-1, 0, 1, 5]),
    completion_tokens=figures,
    source=st.sampled_from(["", "engine", "other"]),
    reasoning_tokens=st.sampled_from([-1, 0, 1, 9]),
)
wild = st.fixed_dictionaries(
    {},
    optional={
        "choice": st.sampled_from([-1, 1]),
        "tokens": st.lists(figures, max_size=2),
        "usage": usages,
        "timing": st.builds(
            Timing,
            queue_us=durations,
            prefill_us=durations,
            decode_us=durations,
            held_us=durations,
        ),
        "finish": st.sampled_from(["stop", "done"]),
        "logprobs": st.just([TokenLogprob(token=-1, logprob=0.0, top=[])]),
        "text": st.just("a"),
        "reasoning": st.just("a"),
        "tool_calls": st.just([]),
        "vectors": st.just(Vectors(places=[0], data=b"")),
    },
)


@given(changes=wild, delivered=st.integers(1, MAX_TOKENS + 1), cached=st.integers(0, 4))
async def test_what_goes_on_is_never_a_problem(
    changes: dict[str, object], delivered: int, cached: int
) -> None:
    job, stream = make_stream()
    offer = ModelOffer(name=MODEL, digest="", context_window=64, vocab_size=VOCAB_SIZE)
    booking = NodeAccount(1).book(0)
    entry = OpenJob(job, stream, booking, offer=offer, waiting_tokens=0)
    for count in range(1, delivered + 1):
        stream.push(make_output(job.request, usage=make_usage(cached=cached, completion=count)))
    usage = make_usage(cached=cached, completion=delivered + 1)
    output = make_output(job.request, usage=usage)
    assert not entry.goes_on(output), "its first token has more to tell"
    entry.answered = True
    assert entry.goes_on(output) == (delivered < MAX_TOKENS)
    output = msgspec.structs.replace(output, **changes)
    assert not entry.goes_on(output) or entry.problem(output) is None


@pytest.mark.parametrize(
    "job",
    [
        make_job(n=2),
        make_job(request_json=b"{}"),
        msgspec.structs.replace(make_job(), inputs=[[1]]),
    ],
)
async def test_only_tokens_of_one_choice_go_on(job: Job) -> None:
    stream = JobStream(job, node="n", cancel=lambda request: None)
    offer = ModelOffer(name=MODEL, digest="", context_window=64, vocab_size=VOCAB_SIZE)
    entry = OpenJob(job, stream, NodeAccount(1).book(0), offer=offer, waiting_tokens=0)
    entry.answered = True
    stream.push(make_output(job.request))
    assert not entry.goes_on(make_output(job.request, usage=make_usage(completion=2)))
