"""The node's links against hand-made gateways: bad frames, silence, two gateways, engine death."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from inference.contract.codec import decode_from_node, encode
from inference.contract.frames import (
    PROTOCOL_VERSION,
    AssetPart,
    AssetRequest,
    Cancel,
    Credits,
    Frame,
    FromGateway,
    FromNode,
    Hello,
    KvEvents,
    KvSnapshotRequest,
    Ping,
    Pong,
    Rejected,
    Step,
    Welcome,
)
from inference.engines.echo import EchoEngine, EchoOptions
from inference.errors import ModelError
from inference.node.assets import ModelAssets
from inference.node.options import BACKOFF_MIN_S, NodeOptions
from inference.node.service import Node, Stop
from tests.support.fleet import (
    CREDENTIAL,
    NODE,
    WAIT_S,
    echo_node,
    make_job,
    make_model,
    make_output,
    make_step,
    running_node,
)
from tests.support.waiting import until

Kind = TypeVar("Kind", bound=Frame)
DIALS_MIN = 3
WELCOME = Welcome(protocol=PROTOCOL_VERSION, gateway="hand", ping_interval_s=0.1)


class HandGateway:
    """A gateway that says what a test tells it to; connections queue up as nodes dial."""

    def __init__(self) -> None:
        self.url = ""
        self.connections: asyncio.Queue[ServerConnection] = asyncio.Queue()

    async def on_connection(self, connection: ServerConnection) -> None:
        self.connections.put_nowait(connection)
        await connection.wait_closed()

    async def next(self) -> ServerConnection:
        return await asyncio.wait_for(self.connections.get(), WAIT_S)

    async def welcomed(self, welcome: Welcome = WELCOME) -> ServerConnection:
        connection = await self.next()
        assert isinstance(await read(connection), Hello)
        await say(connection, welcome)
        return connection


async def read(connection: ServerConnection) -> FromNode:
    async with asyncio.timeout(WAIT_S):
        return decode_from_node(bytes(await connection.recv(decode=False)))


async def read_a(connection: ServerConnection, kind: type[Kind]) -> Kind:
    while not isinstance(frame := await read(connection), kind):
        pass
    return frame


async def drafts_told(connection: ServerConnection) -> list[tuple[int, int]]:
    """Drafted and accepted tokens of each step that had some, until the link ends."""
    told = []
    with contextlib.suppress(ConnectionClosed):
        while True:
            frame = await read(connection)
            if isinstance(frame, Step) and frame.drafted:
                told.append((frame.drafted, frame.accepted))
    return told


async def say(connection: ServerConnection, frame: FromGateway) -> None:
    await connection.send(encode(frame))


@contextlib.asynccontextmanager
async def hand_gateway(port: int = 0) -> AsyncIterator[HandGateway]:
    gateway = HandGateway()
    # It takes in all that comes, so that a connection whose frames nobody reads can be closed.
    serving = serve(gateway.on_connection, "127.0.0.1", port, compression=None, max_queue=None)
    async with serving as server:
        port = next(iter(server.sockets)).getsockname()[1]
        gateway.url = f"ws://127.0.0.1:{port}/fleet"
        yield gateway


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("node"))


async def test_hello_carries_name_digest_and_credential(model: Path) -> None:
    async with hand_gateway() as gateway, echo_node(gateway.url, model, credits=7):
        connection = await gateway.next()
        assert connection.request is not None
        assert connection.request.headers["Authorization"] == f"Bearer {CREDENTIAL}"
        hello = await read(connection)
        assert isinstance(hello, Hello)
        assert (hello.node, hello.credits, hello.engine) == (NODE, 7, "echo")
        assert hello.silence_s == 0, "its steps cannot be told"
        assert hello.models[0].digest == ModelAssets(model).digest


async def test_assets_snapshot_and_ping_are_answered(model: Path) -> None:
    async with hand_gateway() as gateway, echo_node(gateway.url, model):
        connection = await gateway.welcomed()
        assert isinstance(await read(connection), KvEvents)
        await say(connection, Ping(number=3))
        pong = await read(connection)
        assert isinstance(pong, Pong) and (pong.number, pong.received) == (3, 1)
        await say(connection, KvSnapshotRequest())
        snapshot = await read(connection)
        assert isinstance(snapshot, KvEvents) and snapshot.snapshot
        digest = ModelAssets(model).digest
        await say(connection, AssetRequest(digest="f" * 64))
        await say(connection, AssetRequest(digest=digest))
        parts = [await read(connection), await read(connection)]
        assert all(isinstance(part, AssetPart) and part.digest == digest for part in parts)


@pytest.mark.parametrize("message", [b"\xc1", b"", "text", encode(Pong(number=1))])
async def test_a_bad_frame_of_the_gateway_is_answered_by_a_new_link(
    model: Path, message: bytes | str
) -> None:
    async with hand_gateway() as gateway, echo_node(gateway.url, model):
        connection = await gateway.welcomed()
        await connection.send(message)
        await connection.wait_closed()
        assert connection.close_code == 1002
        await gateway.welcomed()


async def test_frames_before_welcome_end_the_link(model: Path) -> None:
    async with hand_gateway() as gateway, echo_node(gateway.url, model):
        connection = await gateway.next()
        await say(connection, Ping(number=1))
        await connection.wait_closed()
        assert connection.close_code == 1002


async def test_a_silent_gateway_is_left_and_dialled_again(model: Path) -> None:
    async with hand_gateway() as gateway, echo_node(gateway.url, model):
        connection = await gateway.welcomed()
        await connection.wait_closed()
        assert connection.close_code == 1013
        await gateway.welcomed()


async def test_a_node_keeps_dialling_a_gateway_that_is_not_there(model: Path) -> None:
    dials = 0

    async def refuse(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal dials
        dials += 1
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, echo_node(f"ws://127.0.0.1:{port}/fleet", model) as node:
        await until(lambda: dials >= DIALS_MIN)
        assert not node.links.connected()
        server.close()
        # Nobody listens for a while, and then a gateway does.
        await asyncio.sleep(BACKOFF_MIN_S)
        async with hand_gateway(port) as gateway:
            await gateway.welcomed()
            await until(node.links.connected)


async def test_a_node_comes_back_when_the_gateway_asks_it_to(model: Path) -> None:
    told_s: list[float] = []

    def refuse(connection: ServerConnection, request: Request) -> Response:
        told_s.append(time.monotonic())
        answer = connection.respond(429, "")
        # What cannot be read is no reason to stay away.
        answer.headers["Retry-After"] = "soon" if len(told_s) == 1 else "1"
        return answer

    gateway = HandGateway()
    async with serve(gateway.on_connection, "127.0.0.1", 0, process_request=refuse) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        async with echo_node(f"ws://127.0.0.1:{port}/fleet", model):
            await until(lambda: len(told_s) >= 3)
    assert told_s[2] - told_s[1] >= 1.0


async def test_two_gateways_share_credits_and_see_only_their_own_outputs(model: Path) -> None:
    async with hand_gateway() as one, hand_gateway() as two:
        options = NodeOptions(
            gateways=(one.url, two.url), name=NODE, credential=CREDENTIAL, credits=9
        )
        node = Node(EchoEngine(model, EchoOptions()), ModelAssets(model), options)
        await node.start()
        first, second = await one.next(), await two.next()
        for connection in (first, second):
            hello = await read(connection)
            assert isinstance(hello, Hello)
            assert hello.credits == 4
            await say(connection, WELCOME)
            assert isinstance(await read(connection), KvEvents)
        job = make_job()
        await say(first, job)
        mine, others = await read(first), await read(second)
        assert isinstance(mine, Step) and isinstance(others, Step)
        assert [output.request for output in mine.outputs] == [job.request]
        assert others.outputs == []
        await node.close()


async def test_a_gateway_hears_what_others_have_here_also_while_the_engine_is_silent(
    model: Path,
) -> None:
    async with hand_gateway() as one, hand_gateway() as two:
        options = NodeOptions(gateways=(one.url, two.url), name=NODE, credential=CREDENTIAL)
        # The one token of this job comes after two seconds.
        node = Node(EchoEngine(model, EchoOptions(tokens_per_s=0.5)), ModelAssets(model), options)
        await node.start()
        patient = msgspec.structs.replace(WELCOME, ping_interval_s=WAIT_S)
        first, second = await one.welcomed(patient), await two.welcomed(patient)
        job = make_job(max_tokens=1)
        await say(first, job)
        for _ in range(3):
            told = await read_a(second, Step)
            assert (told.outputs, told.step_us, told.others_active) == ([], 0, 1)
            assert told.others_queued_tokens == told.waiting_tokens == len(job.tokens)
        own = await read_a(first, Step)
        assert (own.others_active, own.others_queued_tokens) == (0, 0)
        await until(lambda: not node.jobs.jobs_count)
        while told.others_active:
            told = await read_a(second, Step)
        assert told.others_queued_tokens == 0
        await node.close()


async def test_a_new_link_offers_no_credits_that_jobs_of_the_old_one_still_use(
    model: Path,
) -> None:
    """Else the gateway fills them at once, and is refused by an engine that is not done yet."""
    patient = msgspec.structs.replace(WELCOME, ping_interval_s=WAIT_S)
    async with hand_gateway() as gateway:
        options = NodeOptions(gateways=(gateway.url,), name=NODE, credential=CREDENTIAL)
        # What is cancelled ends with the next step: after up to two seconds.
        engine = EchoEngine(model, EchoOptions(tokens_per_s=0.5, credits=2))
        node = Node(engine, ModelAssets(model), options)
        await node.start()
        first = await gateway.welcomed(patient)
        for _ in range(2):
            await say(first, make_job(max_tokens=100))
        await until(lambda: node.jobs.jobs_count == 2)
        await first.close()
        second = await gateway.next()
        hello = await read(second)
        assert isinstance(hello, Hello)
        assert hello.credits == 0
        await say(second, patient)
        told = await read_a(second, Credits)
        assert told.credits == 2
        assert node.jobs.jobs_count == 0
        await node.close()


async def test_of_two_gateways_one_is_told_of_drafts(model: Path) -> None:
    async with hand_gateway() as one, hand_gateway() as two:
        options = NodeOptions(gateways=(one.url, two.url), name=NODE, credential=CREDENTIAL)
        node = Node(EchoEngine(model, EchoOptions(tokens_per_s=5.0)), ModelAssets(model), options)
        await node.start()
        connections = await one.welcomed(), await two.welcomed()
        jobs = [make_job(max_tokens=100) for _ in connections]
        for connection, job in zip(connections, jobs, strict=True):
            await say(connection, job)
        await until(lambda: node.jobs.jobs_count == len(jobs))
        outputs = [make_output(job.request) for job in jobs]
        both, second, nobody = make_step(*outputs), make_step(outputs[1]), make_step()
        for number, step in enumerate((both, second, nobody), 1):
            node.on_step(msgspec.structs.replace(step, drafted=8 * number, accepted=number))
        closing = asyncio.create_task(node.close())
        told = [await drafts_told(connection) for connection in connections]
        await closing
        assert told == [[(8, 1)], [(16, 2)]]


async def test_a_gateway_cannot_cancel_what_another_asked(model: Path) -> None:
    async with hand_gateway() as one, hand_gateway() as two:
        options = NodeOptions(gateways=(one.url, two.url), name=NODE, credential=CREDENTIAL)
        engine = EchoEngine(model, EchoOptions(tokens_per_s=200.0))
        node = Node(engine, ModelAssets(model), options)
        await node.start()
        first, second = await one.welcomed(), await two.welcomed()
        job = make_job(max_tokens=20)
        await say(first, job)
        await until(lambda: node.jobs.jobs_count)
        await say(second, Cancel(request=job.request))
        finishes: list[str | None] = []
        while not any(finishes):
            step = await read_a(first, Step)
            assert isinstance(step, Step)
            finishes += [output.finish for output in step.outputs]
        assert finishes[-1] == "length"
        await node.close()


async def test_a_job_that_the_engine_refuses_is_rejected_and_forgotten(model: Path) -> None:
    async with hand_gateway() as gateway, echo_node(gateway.url, model) as node:
        connection = await gateway.welcomed()
        await say(connection, msgspec.structs.replace(make_job(), model="another"))
        rejected = await read_a(connection, Rejected)
        assert isinstance(rejected, Rejected)
        assert rejected.code == "unknown_model"
        node.draining = True
        await say(connection, make_job())
        rejected = await read_a(connection, Rejected)
        assert isinstance(rejected, Rejected)
        assert rejected.code == "draining"
        assert node.jobs.jobs_count == 0


async def test_an_engine_death_stops_the_node(model: Path) -> None:
    async with hand_gateway() as gateway, echo_node(gateway.url, model) as node:
        node.on_death(RuntimeError("out of memory"))
        node.on_death(RuntimeError("again"))
        assert await node.stopped is Stop.ENGINE_DIED


async def test_being_fenced_stops_the_node(model: Path) -> None:
    async with hand_gateway() as gateway, echo_node(gateway.url, model) as node:
        connection = await gateway.welcomed()
        with contextlib.suppress(ConnectionClosed):
            await connection.close(4409, "newer")
        assert await asyncio.wait_for(node.stopped, WAIT_S) is Stop.FENCED


async def test_a_probe_without_a_token_is_a_model_error(model: Path) -> None:
    engine = EchoEngine(model, EchoOptions(kv_blocks=1, block_size=1))
    with pytest.raises(ModelError, match="probe"):
        async with running_node(engine, "ws://127.0.0.1:1/fleet", model):
            pass
    await engine.close()


@pytest.mark.parametrize("missing", ["tokenizer.json", "tokenizer_config.json"])
def test_missing_assets_are_named(tmp_path: Path, missing: str) -> None:
    path = make_model(tmp_path)
    (path / missing).unlink()
    with pytest.raises(ModelError, match=missing):
        ModelAssets(path)
