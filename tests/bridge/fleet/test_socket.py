"""Node and gateway over a real socket: handshake, jobs, cancel, loss, reports, liveness."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import msgspec
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from controlplane.gateway.nodes.facts import LinkState
from controlplane.gateway.nodes.link import NodeLink
from controlplane.gateway.nodes.stream import JobRejected, NodeLost
from inference.contract.codec import decode_from_gateway, encode
from inference.contract.frames import (
    FRAME_BYTES_MAX,
    PROTOCOL_VERSION,
    FromGateway,
    Output,
    Welcome,
)
from inference.node.drain import drain
from tests.support.fleet import (
    CREDENTIAL,
    MODEL,
    NODE,
    QUICK,
    FleetServer,
    World,
    echo_node,
    fleet_server,
    make_hello,
    make_job,
    make_model,
    make_output,
    make_report,
    make_step,
    outputs_of,
)
from tests.support.waiting import until

SLOW = {"tokens_per_s": 50.0}


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("fleet"))


async def ready(world: World) -> NodeLink:
    await until(lambda: world.fleet.candidates(MODEL))
    return world.fleet.candidates(MODEL)[0]


def dial(server: FleetServer, **headers: str) -> connect:
    chosen = {"Authorization": f"Bearer {CREDENTIAL}"} | headers
    return connect(server.url, additional_headers=chosen, compression=None, proxy=None)


async def say_hello(connection: ClientConnection, **changes: object) -> FromGateway:
    await connection.send(encode(make_hello(**changes)))
    return decode_from_gateway(bytes(await connection.recv(decode=False)))


async def closed_with(connection: ClientConnection) -> int:
    with pytest.raises(ConnectionClosed) as closed:
        while True:
            await connection.recv()
    assert closed.value.rcvd is not None
    return closed.value.rcvd.code


async def test_a_node_becomes_servable_once_its_tokenizer_is_here(model: Path) -> None:
    world = World()
    async with fleet_server(world) as server, echo_node(server.url, model):
        link = await ready(world)
        served = world.fleet.models()[MODEL]
        assert served.text is not None
        assert served.text.encode("hé", add_special=False)
        assert served.text.render([{"role": "user", "content": "hi"}]) == "hi"
        assert link.state is LinkState.READY
        assert link.hello.engine == "echo"
        assert world.fleet_port.seen == [("0" * 32, "connected")]


async def test_a_job_comes_back_token_for_token_and_its_report_is_forgotten(model: Path) -> None:
    world = World()
    async with fleet_server(world) as server, echo_node(server.url, model) as node:
        link = await ready(world)
        job = make_job(max_tokens=6)
        stream = world.fleet.dispatch(link, job)
        assert (link.account.active, link.account.queued_tokens) == (1, 4)
        outputs = await outputs_of(stream)
        tokens = [token for output in outputs for token in output.tokens]
        assert tokens == [*job.tokens, *job.tokens][:6]
        assert outputs[-1].finish == "length"
        assert stream.usage.completion_tokens == 6
        assert (link.account.active, link.account.queued_tokens) == (0, 0)
        assert node.jobs.reports_count == 1
        world.fleet.acknowledge(link, job.request)
        await until(lambda: node.jobs.reports_count == 0)
        assert world.reports == []


async def test_several_choices_end_one_by_one(model: Path) -> None:
    world = World()
    async with fleet_server(world) as server, echo_node(server.url, model):
        link = await ready(world)
        outputs = await outputs_of(world.fleet.dispatch(link, make_job(max_tokens=3, n=3)))
        finished = [output.choice for output in outputs if output.finish]
        assert sorted(finished) == [0, 1, 2]


async def test_cancel_stops_the_engine_within_a_step_and_gives_the_credit_back(
    model: Path,
) -> None:
    world = World()
    async with fleet_server(world) as server, echo_node(server.url, model, **SLOW) as node:
        link = await ready(world)
        stream = world.fleet.dispatch(link, make_job(max_tokens=1000))
        await stream.batch()
        seen = stream.completion_tokens
        stream.cancel()
        stream.cancel()
        usage = await stream.settled()
        assert usage.completion_tokens <= seen + 2
        assert node.jobs.jobs_count == 0
        assert link.account.active == 0
        assert await stream.batch() == []


async def test_a_lost_node_ends_its_streams_and_its_report_comes_after_reconnect(
    model: Path,
) -> None:
    world = World()
    async with fleet_server(world) as server, echo_node(server.url, model, **SLOW) as node:
        link = await ready(world)
        job = make_job(max_tokens=1000)
        stream = world.fleet.dispatch(link, job)
        await stream.batch()
        await server.stop()
        with pytest.raises(NodeLost):
            await outputs_of(stream)
        assert stream.usage.completion_tokens >= 1
        assert link.account.active == 0
        await until(lambda: node.jobs.jobs_count == 0)
        world.fleet.abandon(job.request)
        await server.start()
        await until(lambda: node.jobs.reports_count == 0)
        assert [report.request for report in world.reports] == [job.request]
        assert world.reports[0].finish == "cancelled"


async def test_a_report_is_repeated_until_the_ledger_has_it(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inference.node.jobs.REPORT_REPEAT_S", 0.1)
    monkeypatch.setattr("inference.node.service.HOUSEKEEPING_S", 0.05)
    world = World()
    world.settles = False
    async with fleet_server(world) as server, echo_node(server.url, model) as node:
        link = await ready(world)
        job = make_job()
        await outputs_of(world.fleet.dispatch(link, job))
        await asyncio.sleep(0.3)
        assert world.reports == [], "a live call settles itself"
        world.fleet.abandon(job.request)
        await until(lambda: len(world.reports) >= 2)
        world.settles = True
        await until(lambda: node.jobs.reports_count == 0)


async def test_a_refused_job_raises_its_code(model: Path) -> None:
    world = World()
    async with fleet_server(world) as server, echo_node(server.url, model):
        link = await ready(world)
        stream = world.fleet.dispatch(link, make_job(prompt="x" * 5000))
        with pytest.raises(JobRejected) as refused:
            await stream.batch()
        assert refused.value.code == "too_long"
        assert link.account.active == 0


async def test_a_draining_node_finishes_and_takes_nothing_new(model: Path) -> None:
    world = World()
    async with fleet_server(world) as server, echo_node(server.url, model, **SLOW) as node:
        link = await ready(world)
        job = make_job(max_tokens=20)
        stream = world.fleet.dispatch(link, job)
        await stream.batch()
        leaving = asyncio.create_task(drain(node, 5.0))
        await until(lambda: not world.fleet.candidates(MODEL))
        with pytest.raises(LookupError):
            world.fleet.dispatch(link, make_job())
        rest = await outputs_of(stream)
        assert rest[-1].finish == "length"
        world.fleet.acknowledge(link, job.request)
        await leaving
        assert node.jobs.reports_count == 0


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": "Bearer node_sluice_wrong"},
        {"Authorization": "Basic abc"},
        {"Authorization": "Bearer sk_sluice_key"},
        {"Authorization": "Bearer node_sluice_" + "x" * 300},
        {"Origin": "https://example.org"},
    ],
)
async def test_a_bad_handshake_is_refused(headers: dict[str, str]) -> None:
    async with fleet_server(World()) as server:
        with pytest.raises(InvalidStatus) as refused:
            await dial(server, **headers)
        assert refused.value.response.status_code == 401


async def test_a_handshake_while_credentials_cannot_be_checked_is_told_to_come_back() -> None:
    world = World()
    world.fleet_port.away = True
    async with fleet_server(world) as server:
        with pytest.raises(InvalidStatus) as refused:
            await dial(server)
        assert refused.value.response.status_code == 503


async def test_a_new_epoch_fences_the_old_one_for_good() -> None:
    world = World()
    async with fleet_server(world) as server, dial(server) as old, dial(server) as new:
        assert isinstance(await say_hello(old), Welcome)
        assert isinstance(await say_hello(new, epoch="epoch-2"), Welcome)
        assert await closed_with(old) == 4409
        async with dial(server) as again:
            await again.send(encode(make_hello()))
            assert await closed_with(again) == 4409
        assert world.fleet.nodes()[NODE].hello.epoch == "epoch-2"


async def test_a_reconnect_of_the_same_epoch_replaces_the_old_link() -> None:
    async with fleet_server(World()) as server, dial(server) as old, dial(server) as new:
        await say_hello(old)
        assert isinstance(await say_hello(new), Welcome)
        assert await closed_with(old) == 4410


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"protocol": 99}, 4426),
        ({"node": "someone-else"}, 4403),
        ({"credits": -1}, 1008),
        ({"models": []}, 1008),
        ({"kv_blocks": -1}, 1008),
        ({"epoch": ""}, 1008),
    ],
)
async def test_a_wrong_hello_is_refused(changes: dict[str, object], code: int) -> None:
    async with fleet_server(World()) as server, dial(server) as connection:
        await connection.send(encode(make_hello(**changes)))
        assert await closed_with(connection) == code


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (b"\xc1garbage", 1002),
        (b"", 1002),
        (encode(Welcome(protocol=PROTOCOL_VERSION, gateway="g", ping_interval_s=1.0)), 1002),
        ("text", 1003),
        (b"x" * (FRAME_BYTES_MAX + 1), 1009),
        (b"x" * (FRAME_BYTES_MAX + 4096), 1009),
    ],
)
async def test_a_frame_that_is_none_closes_and_quarantines(message: bytes | str, code: int) -> None:
    world = World()
    async with fleet_server(world) as server:
        async with dial(server) as connection:
            await say_hello(connection)
            with contextlib.suppress(ConnectionClosed):  # The server may cut in while we write.
                await connection.send(message)
            assert await closed_with(connection) == code
        await until(lambda: ("0" * 32, "quarantined") in world.fleet_port.seen)
        assert world.fleet_port.seen[-1][1] == "quarantined"
        async with dial(server) as connection:
            assert await closed_with(connection) == 4403


async def test_impossible_outputs_cost_the_job_then_the_link() -> None:
    world = World()
    async with fleet_server(world) as server, dial(server) as connection:
        await say_hello(connection)
        link = world.fleet.nodes()[NODE]
        streams = []
        for _ in range(QUICK.strikes_max):
            job = make_job()
            streams.append(world.fleet.dispatch(link, job))
            await connection.send(encode(make_step(make_output(job.request, tokens=[9999]))))
        assert await closed_with(connection) == 1002
        for stream in streams:
            with pytest.raises(NodeLost):
                await stream.batch()
            assert stream.completion_tokens == 0
        assert link.account.active == 0


async def test_a_frozen_node_is_detected_and_its_jobs_fail() -> None:
    world = World(msgspec.structs.replace(QUICK, progress_timeout_s=0.3, pong_timeout_s=30.0))
    async with fleet_server(world) as server, dial(server) as connection:
        await say_hello(connection)
        stream = world.fleet.dispatch(world.fleet.nodes()[NODE], make_job())
        with pytest.raises(NodeLost):
            await asyncio.wait_for(stream.batch(), 5.0)
        assert stream.completion_tokens == 0
        assert await closed_with(connection) == 4408


async def test_a_silent_node_is_detected() -> None:
    world = World(msgspec.structs.replace(QUICK, pong_timeout_s=0.5))
    async with fleet_server(world) as server, dial(server) as connection:
        await say_hello(connection)
        assert await closed_with(connection) == 4408


async def test_a_socket_without_hello_is_closed() -> None:
    world = World(msgspec.structs.replace(QUICK, hello_timeout_s=0.3))
    async with fleet_server(world) as server, dial(server) as connection:
        assert await closed_with(connection) == 1008


async def test_reports_of_jobs_that_a_node_never_had_cut_it_and_reach_no_ledger() -> None:
    world = World()
    async with fleet_server(world) as server, dial(server) as connection:
        await say_hello(connection)
        for _ in range(QUICK.strikes_max):
            await connection.send(encode(make_report(b"r" * 16)))
        assert await closed_with(connection) == 1002
        assert world.reports == []


async def test_a_slow_reader_is_cut_with_a_bounded_buffer(model: Path) -> None:
    world = World(msgspec.structs.replace(QUICK, stream_outputs_max=10))
    async with (
        fleet_server(world) as server,
        echo_node(server.url, model, tokens_per_s=2000.0) as node,
    ):
        link = await ready(world)
        stream = world.fleet.dispatch(link, make_job(max_tokens=1000))
        await until(lambda: stream.ended)
        outputs: list[Output] = await stream.batch()
        assert len(outputs) == 11
        with pytest.raises(Exception, match="behind"):
            await stream.batch()
        assert node.jobs.jobs_count == 0
        assert link.account.active == 0
