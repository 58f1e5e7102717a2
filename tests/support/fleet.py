"""A real fleet link for tests: an ASGI server on a loopback port, nodes, and hand-made frames."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import socket
import time
from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import uvicorn
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from controlplane.bridge.fleet.handshakes import Handshakes
from controlplane.bridge.fleet.socket import NodeConsumer
from controlplane.gateway.nodes.limits import LinkLimits
from controlplane.gateway.nodes.registry import Fleet
from controlplane.gateway.nodes.reports import JobTickets
from controlplane.gateway.nodes.stream import JobStream
from controlplane.gateway.ports import LedgerAway, NodeIdentity, Orders
from inference.contract.frames import (
    FRAME_BYTES_MAX,
    PROTOCOL_VERSION,
    REQUEST_ID_BYTES,
    Hello,
    Job,
    ModelOffer,
    Output,
    Report,
    Sampling,
    Step,
    Timing,
    Usage,
)
from inference.engines.base import Engine
from inference.engines.echo import EchoEngine, EchoOptions
from inference.node.assets import ModelAssets
from inference.node.options import NodeOptions
from inference.node.service import Node
from tests.support.asgi import Server
from tests.support.waiting import until

WAIT_S = 60.0
VOCAB_SIZE = 256
MODEL = "tiny"
NODE = "node-1"
CREDENTIAL = "node_sluice_test"
NODE_ID = "0" * 32
EPOCH = "epoch-1"
GATEWAY = "gateway-1"
TICKET_KEY = b"the key of tickets"
TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}"
# A busy machine keeps a pong for seconds; what waits for a silent node names a shorter time.
QUICK = LinkLimits(ping_interval_s=0.2, pong_timeout_s=15.0, tick_s=0.1)


def make_model(folder: Path) -> Path:
    """A byte tokenizer with its configuration; what an echo engine serves."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {char: position for position, char in enumerate(alphabet)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    path = folder / MODEL
    path.mkdir()
    tokenizer.save(str(path / "tokenizer.json"))
    (path / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}))
    config = {"vocab_size": VOCAB_SIZE, "max_position_embeddings": 4096}
    (path / "config.json").write_text(json.dumps(config))
    return path


@dataclass
class MemoryPort:
    """A fleet port whose table is a dict."""

    identities: dict[str, NodeIdentity] = field(
        default_factory=lambda: {CREDENTIAL: NodeIdentity(id=NODE_ID, name=NODE, models=None)}
    )
    seen: list[tuple[str, str]] = field(default_factory=list)
    revoked: set[str] = field(default_factory=set)
    said: dict[str, Orders] = field(default_factory=dict)
    quarantines: dict[str, float] = field(default_factory=dict)
    away: bool = False

    async def authenticate(self, credential: str) -> NodeIdentity | None:
        """The node behind a credential, or None."""
        if self.away:
            raise LedgerAway("away")
        known = self.identities.get(credential)
        if known is None or known.id in self.revoked:
            return None
        return self.with_orders(known)

    async def orders(self, identities: Collection[NodeIdentity]) -> Mapping[NodeIdentity, Orders]:
        """What is `said` of a node, unless it is in `revoked` or quarantined."""
        if self.away:
            raise LedgerAway("away")
        return {each: self.with_orders(each).orders for each in identities}

    def with_orders(self, identity: NodeIdentity) -> NodeIdentity:
        """A node as it stands now."""
        orders = self.said.get(identity.id, Orders())
        if identity.id in self.revoked:
            orders = Orders(lapsed="revoked")
        elif self.quarantines.get(identity.id, 0.0) > time.monotonic():
            orders = Orders(quarantined=True)
        return msgspec.structs.replace(identity, orders=orders)

    def observe(self, node: str, state: str, facts: dict[str, object]) -> None:
        """Remember the change."""
        self.seen.append((node, state))
        if state == "quarantined":
            seconds = facts["quarantine_s"]
            assert isinstance(seconds, float)
            self.quarantines[node] = time.monotonic() + seconds


class World:
    """A gateway as the consumer sees it, and the reports that reach its ledger."""

    def __init__(self, limits: LinkLimits = QUICK) -> None:
        self.fleet_port = MemoryPort()
        self.handshakes = Handshakes()
        self.reports: list[Report] = []
        self.settles = True
        self.givers: list[str] = []
        self.fleet = Fleet(
            GATEWAY,
            ticket_keys=(TICKET_KEY,),
            on_report=self._settle,
            port=self.fleet_port,
            limits=limits,
        )

    async def _settle(self, report: Report, gateway: str) -> bool:
        self.reports.append(report)
        self.givers.append(gateway)
        return self.settles


class FleetServer:
    """The consumer behind uvicorn; keeps its port over a restart."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._port = 0
        self._server: Server | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """Where nodes dial."""
        return f"ws://127.0.0.1:{self._port}/fleet"

    async def start(self) -> None:
        """Listen."""
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self._port))
        self._port = listener.getsockname()[1]
        config = uvicorn.Config(
            NodeConsumer.as_asgi(gateway=lambda: self.world),
            ws="controlplane.bridge.fleet.frames:FrameProtocol",
            ws_max_size=FRAME_BYTES_MAX + 1024,
            ws_per_message_deflate=False,
            lifespan="off",
            log_config=None,
        )
        self._server = Server(config)
        self._task = asyncio.create_task(self._server.serve(sockets=[listener]))
        server = self._server
        await until(lambda: server.started)

    async def stop(self) -> None:
        """Close all sockets and stop listening."""
        assert self._server is not None and self._task is not None
        self._server.should_exit = True
        await self._task
        await self.world.fleet.close()


@contextlib.asynccontextmanager
async def fleet_server(world: World) -> AsyncIterator[FleetServer]:
    """A running server."""
    server = FleetServer(world)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


@contextlib.asynccontextmanager
async def echo_node(url: str, model: Path, **options: float) -> AsyncIterator[Node]:
    """A real node with an echo engine, connected when it can be."""
    chosen = msgspec.convert(options, EchoOptions)
    async with running_node(EchoEngine(model, chosen), url, model) as node:
        yield node


@contextlib.asynccontextmanager
async def running_node(engine: Engine, url: str, model: Path, *others: str) -> AsyncIterator[Node]:
    """A node around an engine; `others` are more gateways to dial."""
    options = NodeOptions(gateways=(url, *others), name=NODE, credential=CREDENTIAL)
    node = Node(engine, ModelAssets(model), options)
    await node.start()
    try:
        yield node
    finally:
        await node.close()


async def outputs_of(stream: JobStream) -> list[Output]:
    """All outputs that are still to come."""
    outputs: list[Output] = []
    while batch := await stream.batch():
        outputs += batch
    return outputs


def new_request() -> bytes:
    """A request id."""
    return secrets.token_bytes(REQUEST_ID_BYTES)


def make_job(
    *, max_tokens: int = 4, n: int = 1, prompt: str = "abcd", request_json: bytes = b""
) -> Job:
    """A job for the tiny model."""
    return Job(
        request=new_request(),
        model=MODEL,
        tokens=list(prompt.encode()),
        salt=b"salt",
        hashes=b"",
        sampling=Sampling(max_tokens=max_tokens, n=n),
        stop_tokens=[],
        deadline_ms=60_000,
        request_json=request_json,
    )


def make_hello(**changes: object) -> Hello:
    """A hello that any gateway accepts."""
    offer = ModelOffer(name=MODEL, digest="0" * 64, context_window=4096, vocab_size=VOCAB_SIZE)
    hello = Hello(
        protocol=PROTOCOL_VERSION,
        node=NODE,
        epoch=EPOCH,
        pool="default",
        region="local",
        engine="hand",
        device="none",
        dtype="none",
        block_size=16,
        kv_blocks=64,
        credits=8,
        capabilities=[],
        models=[offer],
    )
    return msgspec.structs.replace(hello, **changes)


def make_usage(prompt: int = 4, cached: int = 0, completion: int = 1) -> Usage:
    """Cumulative usage."""
    return Usage(prompt_tokens=prompt, cached_tokens=cached, completion_tokens=completion)


def make_output(request: bytes, **changes: object) -> Output:
    """One token of one request."""
    output = Output(
        request=request,
        choice=0,
        tokens=[1],
        usage=make_usage(),
        timing=Timing(queue_us=1, prefill_us=1000, decode_us=1, held_us=1),
    )
    return msgspec.structs.replace(output, **changes)


def make_step(*outputs: Output) -> Step:
    """A step with these outputs."""
    return Step(
        outputs=list(outputs),
        running=1,
        waiting=0,
        waiting_tokens=0,
        kv_free_blocks=1,
        oldest_block_s=0.0,
        step_us=1000,
        preemptions=0,
    )


def make_report(request: bytes, **changes: object) -> Report:
    """A final report, without a ticket."""
    report = Report(
        request=request,
        model=MODEL,
        usage=make_usage(),
        timing=Timing(queue_us=1, prefill_us=1, decode_us=1, held_us=1),
        finish="stop",
        ticket=b"",
    )
    return msgspec.structs.replace(report, **changes)


def with_ticket(
    report: Report, *, node: str = NODE_ID, gateway: str = GATEWAY, epoch: str = EPOCH
) -> Report:
    """The report as a node sends it that was given the job by this gateway."""
    job = msgspec.structs.replace(make_job(), request=report.request, model=report.model)
    ticket = JobTickets((TICKET_KEY,), gateway).issue(job, node=node, epoch=epoch)
    return msgspec.structs.replace(report, ticket=ticket)
