"""Nodes of a gateway under test: real ones by name, and one whose frames a test writes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
from tokenizers import Tokenizer
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from controlplane.gateway.ports import NodeIdentity
from inference.contract.codec import decode_from_gateway, encode
from inference.contract.frames import (
    Ack,
    AssetRequest,
    Cancel,
    FromGateway,
    FromNode,
    Hello,
    Job,
    Output,
    Ping,
    Pong,
    Timing,
    Usage,
)
from inference.contract.parts import TokenLogprob
from inference.engines.echo import EchoEngine, EchoOptions
from inference.node.assets import ModelAssets
from inference.node.options import NodeOptions
from inference.node.service import Node
from tests.support.fleet import make_hello, make_output, make_step, make_usage
from tests.support.gateway import GatewayUnderTest
from tests.support.waiting import until

FRAME_BYTES = 2**23
BLOCK_SIZE = EchoOptions().block_size


def let_in(under_test: GatewayUnderTest, name: str) -> str:
    """A credential for a node of this name."""
    credential = f"node_sluice_{name}"
    identity = NodeIdentity(id=name.encode().hex().ljust(32, "0"), name=name, models=None)
    under_test.fleet_port.identities[credential] = identity
    return credential


@contextlib.asynccontextmanager
async def named_node(
    under_test: GatewayUnderTest,
    model: Path,
    name: str,
    /,
    *,
    pool: str = "default",
    region: str = "local",
    **options: object,
) -> AsyncIterator[Node]:
    """A real echo node of its own name, serving: connected, and its tokenizer known."""
    engine = EchoEngine(model, msgspec.convert(options, EchoOptions))
    settings = NodeOptions(
        gateways=(under_test.fleet_url,),
        name=name,
        credential=let_in(under_test, name),
        pool=pool,
        region=region,
    )
    node = Node(engine, ModelAssets(model), settings)
    await node.start()
    try:
        await until(lambda: _serves(under_test, name))
        yield node
    finally:
        await node.close()


def _serves(under_test: GatewayUnderTest, name: str) -> bool:
    served = under_test.fleet.models().values()
    return any(link.identity.name == name for model in served for link in model.nodes)


class HandNode:
    """A node that answers pings and asset requests, and leaves its jobs to the test."""

    def __init__(self, socket: ClientConnection, model: Path) -> None:
        self.socket = socket
        self.jobs: list[Job] = []
        self.cancelled: list[bytes] = []
        self.acknowledged: list[bytes] = []
        self.sent: dict[bytes, int] = {}
        self.frozen = False
        self._assets = ModelAssets(model)

    async def send(self, frame: FromNode) -> None:
        """One frame."""
        await self.socket.send(encode(frame))

    async def job(self) -> Job:
        """The next job; the first when none has been taken."""
        await until(lambda: self.jobs)
        return self.jobs.pop(0)

    async def answer(
        self,
        job: Job,
        text: str = "",
        *,
        finish: str | None = None,
        choice: int = 0,
        logprobs: list[TokenLogprob] | None = None,
        prefilled: int = 0,
    ) -> None:
        """One step with the tokens of a text, one byte each; before the first one as much of the
        prompt is computed as is `prefilled`.
        """
        tokens = list(text.encode())
        self.sent[job.request] = self.sent.get(job.request, 0) + len(tokens)
        prompt_tokens = len(job.tokens) if self.sent[job.request] else prefilled
        output = Output(
            request=job.request,
            choice=choice,
            tokens=tokens,
            usage=Usage(
                prompt_tokens=prompt_tokens,
                cached_tokens=0,
                completion_tokens=self.sent[job.request],
            ),
            timing=Timing(queue_us=100, prefill_us=200, decode_us=300, held_us=700),
            finish=finish,
            logprobs=logprobs,
        )
        await self.send(make_step(output))

    async def listen(self) -> None:
        """Take frames until the link is closed."""
        with contextlib.suppress(ConnectionClosed):
            while True:
                data = await self.socket.recv()
                assert isinstance(data, bytes)
                await self._take(decode_from_gateway(data))

    async def _take(self, frame: FromGateway) -> None:
        if self.frozen:
            return
        if isinstance(frame, Ping):
            await self.send(Pong(number=frame.number))
        elif isinstance(frame, AssetRequest):
            for part in self._assets.parts(frame.digest):
                await self.send(part)
        elif isinstance(frame, Job):
            self.jobs.append(frame)
        elif isinstance(frame, Cancel):
            self.cancelled.append(frame.request)
        elif isinstance(frame, Ack):
            self.acknowledged += frame.requests


def hello_of(model: Path, *, window: int = 4096, **changes: object) -> Hello:
    """A hello that offers this model's tokenizer."""
    hello = make_hello()
    (offer,) = hello.models
    offer = msgspec.structs.replace(offer, digest=ModelAssets(model).digest, context_window=window)
    return msgspec.structs.replace(hello, models=[offer], block_size=BLOCK_SIZE, **changes)


@contextlib.asynccontextmanager
async def hand_node(
    under_test: GatewayUnderTest,
    model: Path,
    *,
    name: str = "hand",
    credits: int = 8,
    window: int = 4096,
    **hello: object,
) -> AsyncIterator[HandNode]:
    """A node that has said hello and can be dispatched to."""
    headers = {"authorization": f"Bearer {let_in(under_test, name)}"}
    async with connect(
        under_test.fleet_url, additional_headers=headers, max_size=FRAME_BYTES, compression=None
    ) as socket:
        node = HandNode(socket, model)
        listening = asyncio.create_task(node.listen())
        await node.send(
            hello_of(
                model,
                window=window,
                node=name,
                credits=credits,
                **hello,
            )
        )
        try:
            await until(lambda: name in under_test.fleet.nodes())
            await under_test.served()
            yield node
        finally:
            await socket.close()
            await listening


async def say(node: HandNode, job: Job, model: Path, text: str, *, width: int) -> None:
    """Answer a job with a text, some bytes at a time."""
    tokens = Tokenizer.from_file(str(model / "tokenizer.json")).encode(text).ids
    for at in range(0, len(tokens), width):
        part = tokens[at : at + width]
        usage = make_usage(prompt=len(job.tokens), completion=at + len(part))
        finish = "stop" if at + width >= len(tokens) else None
        await node.send(
            make_step(make_output(job.request, tokens=part, usage=usage, finish=finish))
        )
