"""Nodes that report what they never did, or too early, over another gateway than the request's."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import msgspec
from django.conf import settings
from websockets.asyncio.client import connect

from controlplane.composed.demo import MODEL, POOL
from controlplane.core.audit.entries import OPERATOR
from controlplane.fleet.models import NodeStatus
from controlplane.fleet.services import node_credential_create
from inference.contract.frames import FRAME_BYTES_MAX, Job, Report, Timing
from tests.faults.test_nodes import check_nobody_serves
from tests.product.books import bills, check_books, kinds, open_holds
from tests.product.traffic import Answer, ask, make_body, open_client, word_token
from tests.support.fleet import make_output, make_step, make_usage
from tests.support.money import rows
from tests.support.nodes import HandNode, hello_of
from tests.support.orm import orm
from tests.support.product import Plan, Product
from tests.support.waiting import until

PLAN = Plan(gateways=2, nodes=0)
TOKENS = 3
QUIET_S = 1.0
# Its heartbeat lapses after five seconds.
GONE_S_MAX = 30.0
TIMING = Timing(queue_us=1, prefill_us=1, decode_us=1, held_us=1)


@contextlib.asynccontextmanager
async def hand_made(
    product: Product,
    name: str,
    *gateways: int,
    standing: str = NodeStatus.ACTIVE,
    digest: str = "",
) -> AsyncIterator[list[HandNode]]:
    """One node with a link to each of these gateways; it offers the shipped model, or a digest."""
    made = await orm(node_credential_create)(
        actor=OPERATOR, name=name, pool=POOL, models=[MODEL.name]
    )
    rows("UPDATE nodes SET standing = %s WHERE name = %s", standing, name)
    hello = hello_of(settings.SHIPPED_MODEL_DIR, node=name, pool=POOL)
    changes = {"digest": digest} if digest else {}
    offer = msgspec.structs.replace(
        hello.models[0], name=MODEL.name, vocab_size=4096, context_window=MODEL.context_window,
        **changes,
    )  # fmt: skip
    hello = msgspec.structs.replace(hello, models=[offer])
    async with contextlib.AsyncExitStack() as stack:
        links = []
        for number in gateways:
            url = f"{product.urls[number]}/fleet".replace("http", "ws")
            socket = await stack.enter_async_context(
                connect(
                    url,
                    additional_headers={"authorization": f"Bearer {made.secret}"},
                    max_size=FRAME_BYTES_MAX,
                    compression=None,
                    proxy=None,
                )
            )
            link = HandNode(socket, settings.SHIPPED_MODEL_DIR)
            stack.callback(asyncio.create_task(link.listen()).cancel)
            await link.send(hello)
            links.append(link)
        yield links


def report_of(job: Job, completion: int, **changes: object) -> Report:
    """What a node says of a job at its end."""
    report = Report(
        request=job.request,
        model=job.model,
        usage=make_usage(prompt=len(job.tokens), completion=completion),
        timing=TIMING,
        finish="stop",
        ticket=job.ticket,
    )
    return msgspec.structs.replace(report, **changes)


def served(product: Product) -> bool:
    """A node is at the first gateway, with its tokenizer."""
    facts = product.readiness()
    return bool(facts["nodes"] and facts["models"])


class Stream:
    """A stream at the first gateway, of which the node has sent all but the last token."""

    def __init__(self, product: Product) -> None:
        self.answer = Answer(streamed=True)
        self._client = open_client(product.urls[0])
        body = make_body(tokens=TOKENS)
        self._asking = asyncio.create_task(ask(self._client, product.key, body, answer=self.answer))

    async def begin(self, node: HandNode) -> Job:
        """The job, once the client has read its first tokens."""
        self._node = node
        self.job = await node.job()
        for number in range(1, TOKENS):
            await self._step(number)
        await until(lambda: self.answer.tokens == TOKENS - 1)
        return self.job

    async def finish(self) -> None:
        """Send the last token, and let the client read to the end."""
        await self._step(TOKENS, finish="length")
        await self.done()

    async def done(self) -> None:
        """The client has read what there is."""
        await self._asking
        await self._client.aclose()

    async def _step(self, number: int, **changes: object) -> None:
        usage = make_usage(prompt=len(self.job.tokens), completion=number)
        output = make_output(
            self.job.request, tokens=[word_token()], usage=usage, timing=TIMING, **changes
        )
        await self._node.send(make_step(output))


async def test_a_node_that_never_had_a_request_cannot_settle_it(product: Product) -> None:
    foreign = "f" * 64
    async with (
        hand_made(product, "maker", 0) as (maker,),
        hand_made(product, "stranger", 1) as (stranger,),
        hand_made(product, "waiting", 1, standing=NodeStatus.PENDING) as (waiting,),
        hand_made(product, "held", 1, digest=foreign) as (held,),
    ):
        await until(lambda: served(product))
        stream = Stream(product)
        job = await stream.begin(maker)
        for node in (stranger, waiting, held):
            for completion in (0, 100_000):
                await node.send(report_of(job, completion, ticket=b"x" * 64))
                await node.send(report_of(job, completion, model="another", ticket=b""))
        await asyncio.sleep(QUIET_S)
        assert (kinds(stream.answer.request), open_holds()) == (["hold"], 1)
        for node in (stranger, waiting, held):
            # It is the fifth offence: the node is cut.
            await node.send(report_of(job, 1, ticket=job.ticket))
            await node.socket.wait_closed()
            assert (node.acknowledged, node.socket.close_code) == ([], 1002)
        await stream.finish()
    out = rows("SELECT name FROM nodes WHERE quarantined_until > now() ORDER BY name")
    assert out == [("held",), ("stranger",), ("waiting",)]
    assert stream.answer.whole
    assert bills()[stream.answer.request].sources == {"gateway"}
    await check_books([stream.answer])


async def test_a_node_settles_its_own_request_elsewhere_only_once_its_gateway_is_gone(
    product: Product,
) -> None:
    async with hand_made(product, "author", 0, 1) as (first, second):
        await until(lambda: served(product))
        # One after the other: jobs do not come in the order in which they were asked for.
        stream = Stream(product)
        job = await stream.begin(first)
        cut = Stream(product)
        lost = await cut.begin(first)
        for early in (report_of(job, 0), report_of(lost, 0)):
            await second.send(early)
        await asyncio.sleep(QUIET_S)
        assert (second.acknowledged, open_holds()) == ([], 2)
        await stream.finish()
        await second.send(report_of(job, 0))
        await until(lambda: second.acknowledged == [job.request])
        product.gateways[0].kill()
        await cut.done()
        late = report_of(lost, TOKENS)
        async with asyncio.timeout(GONE_S_MAX):
            while lost.request not in second.acknowledged:
                await second.send(late)
                await asyncio.sleep(QUIET_S)
    charged = bills()
    assert charged[stream.answer.request].sources == {"gateway"}
    assert charged[lost.request.hex()].sources == {"node"}
    await check_books([stream.answer, cut.answer])


async def test_no_node_is_said_at_once(product: Product) -> None:
    """By a gateway to which none has ever come."""
    product.gateways[0].kill()
    await asyncio.to_thread(product.mend)
    await check_nobody_serves(product)
