"""The node's end of a link that breaks: its jobs run on, and no output is lost or sent twice."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec
import pytest
from websockets.asyncio.server import ServerConnection

from benchmarks.faults.network import Network
from controlplane.gateway.nodes.limits import RESUME_S
from controlplane.gateway.nodes.link import NodeLink
from controlplane.gateway.nodes.stream import JobStream, NodeLost
from inference.contract.frames import (
    Hello,
    Job,
    KvEvents,
    Output,
    Ping,
    Pong,
    Step,
)
from inference.contract.replay import Resume, Resumed
from inference.contract.version import VERSION
from inference.node import options
from inference.node.jobs import JobTable
from inference.node.options import REPORT_REPEAT_S
from inference.node.service import Node
from tests.inference.node.test_link import (
    WELCOME,
    HandGateway,
    hand_gateway,
    read,
    read_a,
    say,
)
from tests.support.fleet import (
    MODEL,
    NODE,
    WAIT_S,
    World,
    echo_node,
    fleet_server,
    make_job,
    make_model,
    make_output,
    make_usage,
    outputs_of,
)
from tests.support.waiting import until

# Long enough that a test which waits for nothing cannot run into it.
PATIENT = msgspec.structs.replace(WELCOME, ping_interval_s=WAIT_S, resume_s=WAIT_S)
URL = "ws://gateway/fleet"
GATEWAY = "gateway-1"
TOKENS = 40
PACE = 50.0
JOBS, CUTS, SHORT_S = 4, 3, 0.3


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("node"))


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may take longer than the bound for what happens at once."""
    monkeypatch.setattr(options, "RESUME_S", WAIT_S)


class Began(NamedTuple):
    """A job under way, and the frames that the node sent until its first token."""

    connection: ServerConnection
    job: Job
    frames: list[object]


async def begin(gateway: HandGateway) -> Began:
    connection = await gateway.welcomed(PATIENT)
    job = make_job(max_tokens=TOKENS)
    await say(connection, job)
    frames: list[object] = []
    while not tokens_of(frames, job):
        frames.append(await read(connection))
    return Began(connection, job, frames)


def tokens_of(frames: list[object], job: Job) -> list[int]:
    outputs = [output for step in frames if isinstance(step, Step) for output in step.outputs]
    return [token for each in outputs if each.request == job.request for token in each.tokens]


def expected(job: Job) -> list[int]:
    """What an echo node answers."""
    return list(islice(cycle(job.tokens), job.sampling.max_tokens))


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("lost", [0, 1, 2])
async def test_after_a_break_the_gateway_gets_what_it_lacks(model: Path, lost: int) -> None:
    async with hand_gateway() as gateway, echo_node(gateway.url, model, tokens_per_s=PACE) as node:
        began = await begin(gateway)
        frames = began.frames[: len(began.frames) - lost]
        began.connection.transport.abort()
        second = await gateway.next()
        asked = await read(second)
        assert isinstance(asked, Resume)
        assert asked == Resume(session=asked.session, received=1, held=0)
        assert node.jobs.jobs_count == 1
        await say(second, Resumed(received=len(frames)))
        while len(tokens_of(frames, began.job)) < TOKENS:
            frames.append(await read(second))
        assert tokens_of(frames, began.job) == expected(began.job)


@pytest.mark.usefixtures("patient")
async def test_pings_tell_what_need_not_be_kept(model: Path) -> None:
    async with hand_gateway() as gateway, echo_node(gateway.url, model, tokens_per_s=PACE):
        began = await begin(gateway)
        await say(began.connection, Ping(number=1, received=len(began.frames)))
        pong = await read_a(began.connection, Pong)
        assert (pong.number, pong.received) == (1, 2)
        began.connection.transport.abort()
        asked = await read(await gateway.next())
        assert isinstance(asked, Resume)
        assert (asked.received, asked.held) == (2, len(began.frames))


@pytest.mark.usefixtures("patient")
async def test_a_gateway_that_has_no_such_session_is_greeted_anew(model: Path) -> None:
    async with hand_gateway() as gateway, echo_node(gateway.url, model, tokens_per_s=PACE) as node:
        began = await begin(gateway)
        began.connection.transport.abort()
        second = await gateway.next()
        asked = await read(second)
        assert isinstance(asked, Resume)
        await say(second, Resumed(received=None))
        hello = await read(second)
        assert isinstance(hello, Hello) and hello.session not in ("", asked.session)
        assert hello.release == VERSION
        await until(lambda: not node.jobs.jobs_count)
        await say(second, PATIENT)
        assert isinstance(await read(second), KvEvents)


async def test_when_the_time_is_over_its_jobs_are_cancelled(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(options, "RESUME_S", 0.01)
    async with hand_gateway() as gateway, echo_node(gateway.url, model, tokens_per_s=PACE) as node:
        began = await begin(gateway)
        began.connection.transport.abort()
        assert isinstance(await read(await gateway.next()), Hello)
        await until(lambda: not node.jobs.jobs_count)
        (report,) = node.jobs.due_reports("hand", 2 * REPORT_REPEAT_S + 1e9)
        assert report.finish == "cancelled"
        assert report.usage.completion_tokens < TOKENS


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("how", ["closed", "never resumes"])
async def test_without_a_break_to_resume_the_node_says_hello(model: Path, how: str) -> None:
    async with hand_gateway() as gateway, echo_node(gateway.url, model) as node:
        resume_s = WAIT_S if how == "closed" else 0.0
        first = await gateway.welcomed(msgspec.structs.replace(PATIENT, resume_s=resume_s))
        await until(node.links.connected)
        if how == "closed":
            await first.close()
        else:
            first.transport.abort()
        assert isinstance(await read(await gateway.next()), Hello)


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("received", [-1, 10**6])
async def test_frames_that_the_gateway_cannot_have_end_the_link(model: Path, received: int) -> None:
    async with hand_gateway() as gateway, echo_node(gateway.url, model):
        (await gateway.welcomed(PATIENT)).transport.abort()
        second = await gateway.next()
        assert isinstance(await read(second), Resume)
        await say(second, Resumed(received=received))
        await second.wait_closed()
        assert second.close_code == 1002
        assert isinstance(await read(await gateway.next()), Hello)


async def test_what_was_not_asked_for_ends_the_link(model: Path) -> None:
    async with hand_gateway() as gateway, echo_node(gateway.url, model):
        first = await gateway.welcomed(PATIENT)
        await say(first, Resumed(received=0))
        await first.wait_closed()
        assert first.close_code == 1002


@pytest.mark.parametrize("before", [0, 2])
@pytest.mark.parametrize("ends", ["during the break", "after it"])
def test_what_nobody_read_is_not_charged(before: int, ends: str) -> None:
    table = JobTable()
    job = make_job()
    table.accept(job, URL, GATEWAY)
    for number in range(1, before + 1):
        table.split([output(job, number)], 0.0)
    table.suspend(URL)
    table.split([output(job, before + 1)], 0.0)
    last = output(job, before + 2, finish="length" if ends == "during the break" else "cancelled")
    if ends == "during the break":
        table.split([last], 0.0)
    table.disconnect(URL)
    table.split([last], 0.0)
    (report,) = table.due_reports(GATEWAY, REPORT_REPEAT_S)
    assert (report.usage.completion_tokens, report.finish) == (before, "cancelled")


@pytest.mark.parametrize("ends", ["during the break", "after it"])
def test_what_was_read_in_the_end_is_charged_whole(ends: str) -> None:
    table = JobTable()
    job = make_job()
    table.accept(job, URL, GATEWAY)
    table.split([output(job, 1)], 0.0)
    table.suspend(URL)
    last = output(job, 2, finish="length")
    if ends == "during the break":
        table.split([last], 0.0)
    table.resume(URL)
    table.split([last], 0.0)
    table.disconnect(URL)
    (report,) = table.due_reports(GATEWAY, REPORT_REPEAT_S)
    assert (report.usage.completion_tokens, report.finish) == (2, "length")


def output(job: Job, number: int, *, finish: str | None = None) -> Output:
    return make_output(job.request, usage=make_usage(completion=number), finish=finish)


@pytest.fixture
def network() -> Iterator[Network]:
    with Network() as made:
        yield made


class Rig(NamedTuple):
    """A real node and a real gateway with a network between them, and streams under way."""

    world: World
    node: Node
    link: NodeLink
    streams: list[tuple[Job, JobStream]]


async def begin_streams(world: World, node: Node) -> Rig:
    await until(lambda: world.fleet.candidates(MODEL))
    (link,) = world.fleet.candidates(MODEL)
    jobs = [make_job(max_tokens=TOKENS) for _ in range(JOBS)]
    streams = [(job, world.fleet.dispatch(link, job)) for job in jobs]
    await until(lambda: all(stream.completion_tokens for _, stream in streams))
    return Rig(world, node, link, streams)


@pytest.mark.usefixtures("patient")
async def test_streams_are_the_same_with_and_without_breaks(model: Path, network: Network) -> None:
    world = World(msgspec.structs.replace(World().fleet.limits, resume_s=WAIT_S))
    async with fleet_server(world) as server:
        url = f"ws://127.0.0.1:{network.dial(NODE, urlsplit(server.url).port or 0)}/fleet"
        async with echo_node(url, model, tokens_per_s=PACE) as node:
            rig = await begin_streams(world, node)
            reading = [asyncio.create_task(outputs_of(stream)) for _, stream in rig.streams]
            for _ in range(CUTS):
                network.sever(NODE)
                await until(lambda: not rig.link.takes_jobs)
                await asyncio.sleep(SHORT_S)
                network.mend(NODE)
                await until(lambda: rig.link.takes_jobs)
            for (job, stream), outputs in zip(
                rig.streams, await asyncio.gather(*reading), strict=True
            ):
                tokens = [token for each in outputs for token in each.tokens]
                assert tokens == expected(job)
                assert stream.usage.completion_tokens == TOKENS
                world.fleet.acknowledge(rig.link, job.request)
            await until(lambda: not node.jobs.reports_count)
            assert world.reports == []
            assert (rig.link.account.active, rig.link._strikes) == (0, 0)
            assert world.fleet.candidates(MODEL) == (rig.link,)


async def test_a_longer_break_ends_the_jobs_on_both_ends(
    model: Path, network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(options, "RESUME_S", SHORT_S)
    world = World(msgspec.structs.replace(World().fleet.limits, resume_s=SHORT_S))
    async with fleet_server(world) as server:
        url = f"ws://127.0.0.1:{network.dial(NODE, urlsplit(server.url).port or 0)}/fleet"
        async with echo_node(url, model, tokens_per_s=1.0) as node:
            rig = await begin_streams(world, node)
            network.sever(NODE)
            for _, stream in rig.streams:
                with pytest.raises(NodeLost):
                    await outputs_of(stream)
            await until(lambda: not node.jobs.jobs_count)
            assert rig.link.account.active == 0
            network.mend(NODE)
            await until(lambda: world.fleet.candidates(MODEL))
            assert world.fleet.candidates(MODEL) != (rig.link,)


def test_both_ends_wait_equally_long() -> None:
    assert options.RESUME_S == RESUME_S
