"""The product that is fuzzed, another tenant who goes on beside it, and what has to hold of both.

One gateway, one compact node for the tenants' model, and a pool whose only nodes are the fuzzer's
own: each link of a case is such a node, and a request for its model runs meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import secrets
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import psutil
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from controlplane.catalog.pools import PoolDraft, pool_set
from controlplane.catalog.services import model_create, price_publish
from controlplane.composed.demo import MODEL as DEMO_MODEL
from controlplane.composed.demo import PRICE
from controlplane.core.audit.entries import OPERATOR
from controlplane.embedded import stack
from controlplane.fleet.services import node_credential_create
from controlplane.quotas.services import rate_limit_set
from controlplane.telemetry.rollups import roll_up
from controlplane.tenants.keys import apikey_create
from controlplane.tenants.services import organization_create, project_create
from controlplane.tenants.sign_in.accounts import user_create
from inference.contract.codec import decode_from_gateway
from inference.contract.frames import FRAME_BYTES_MAX, Job, Welcome
from tests.fuzz.case import JOB, KEY, Case
from tests.fuzz.frames import EPOCH, MODEL, NODE, POOL
from tests.fuzz.wire import Reply, exchange
from tests.product.books import bills, open_holds
from tests.product.traffic import Answer, ask, make_body, open_client
from tests.support.loopback import HOST
from tests.support.money import rows
from tests.support.orm import orm
from tests.support.product import LIMITS, Plan, Product, running_product, verify_ledger
from tests.support.servers import Servers
from tests.support.waiting import until

NODES = 8
# A probe of the other tenant is answered within this, while one body of 8 MB is read, too.
PROBE_S_MAX = 10.0
PROBE_EVERY_S = 0.05
# A request to a node of the fuzzer ends within this, whatever that node does or leaves.
FUZZED_S_MAX = 60.0
JOB_WAIT_S = 0.3
LINK_S_MAX = 10.0
# How streams of each shape end that are complete.
ENDS = re.compile(rb"data: \[DONE\]|event: (?:message_stop|response\.(?:completed|incomplete))\n")
SETTLED_S_MAX = 90.0
RSS_GROWTH_MIB_MAX = 96.0
DESCRIPTORS_GROWTH_MAX = 32
ROLL_UP_AHEAD = timedelta(minutes=3)
MIB = 2**20
ERROR_KEYS = {"message", "type", "param", "code"}
# Documented: what was asked for cannot be followed, or is not spoken here.
SERVER_CODES = {"grammar_failed", "unsupported_transfer_encoding", "unsupported_http_version"}
UNAVAILABLE = 503


@dataclass
class Ground:
    """The running product; `problems` are what has gone wrong so far."""

    product: Product
    probe_key: str
    credentials: list[str]
    problems: list[str] = field(default_factory=list)
    probes: list[Answer] = field(default_factory=list)
    asked: list[asyncio.Task[None]] = field(default_factory=list)
    _read: int = 0
    _link: int = 0
    _before: tuple[float, int] = (0.0, 0)

    async def play(self, case: Case) -> None:
        """Send all of a case; what is wrong with the answers joins the problems."""
        if case.door == "v1":
            await asyncio.gather(*(self._request(data) for data in case.data))
        else:
            await self._frames(case.data)

    def look(self) -> None:
        """What the gateway has written since, and whether it still runs."""
        (gateway,) = self.product.gateways
        log, start = gateway.log, self._read
        self._read = len(log)
        if "Traceback" in log[start:]:
            at = log.index("Traceback", start)
            self.problems.append(f"a traceback in the gateway's log: {log[at - 300 : at + 2_000]}")
        if not all(child.alive for child in (gateway, *self.product.nodes)):
            self.problems.append("a process has ended")

    async def forgive(self) -> None:
        """End the quarantines of the fuzzer's nodes."""
        names = [_name(number) for number in range(NODES)]
        await asyncio.to_thread(
            rows, "UPDATE nodes SET quarantined_until = NULL WHERE name = ANY(%s)", names
        )

    async def still(self) -> None:
        """Everything that was asked has ended, nothing is left open, and roll-ups go on."""
        await asyncio.gather(*self.asked)
        self.asked.clear()
        try:
            await until(self._nothing_open, SETTLED_S_MAX)
        except TimeoutError:
            self.problems.append(f"after {SETTLED_S_MAX:g} s open: {self.product.readiness()}")
        try:
            await orm(roll_up)(datetime.now(UTC) + ROLL_UP_AHEAD)
        except Exception as error:
            self.problems.append(f"roll-ups have ended: {error!r}")
        rss_mib, descriptors = self.used()
        if not self._before[1]:
            self._before = (rss_mib, descriptors)
        if rss_mib - self._before[0] > RSS_GROWTH_MIB_MAX:
            self.problems.append(f"resident: {self._before[0]:.0f} MiB, then {rss_mib:.0f}")
        if descriptors - self._before[1] > DESCRIPTORS_GROWTH_MAX:
            self.problems.append(f"descriptors: {self._before[1]}, then {descriptors}")

    async def check_money(self) -> None:
        """The probes' bills, and the ledger's own invariants."""
        booked = await asyncio.to_thread(bills)
        for probe in self.probes:
            bill, usage = booked.get(probe.request), probe.usage or {}
            if bill is None or (bill.charges, bill.output) != (1, usage.get("completion_tokens")):
                self.problems.append(f"money: {bill} for {usage}")
        try:
            await verify_ledger()
        except AssertionError as error:
            self.problems.append(f"money: {error}")

    def used(self) -> tuple[float, int]:
        """Resident MiB and descriptors of the gateway."""
        gateway = psutil.Process(self.product.gateways[0].pid)
        return gateway.memory_info().rss / MIB, gateway.num_fds()

    async def probe(self) -> None:
        """Ask as the other tenant until cancelled: every answer is complete, and in time."""
        async with open_client(self.product.urls[0]) as client:
            client.headers["connection"] = "close"
            while True:
                body = make_body(tokens=3, stream=bool(len(self.probes) % 2))
                answer = await ask(client, self.probe_key, body)
                self.probes.append(answer)
                took_s = answer.ended_s - answer.began_s
                if not answer.whole or took_s > PROBE_S_MAX:
                    what = answer.error or answer.broken
                    self.problems.append(f"a probe: {answer.status} {what} after {took_s:.1f} s")
                await asyncio.sleep(PROBE_EVERY_S)

    def _nothing_open(self) -> bool:
        return not open_holds() and not self.product.readiness().get("jobs", 1)

    async def _request(self, data: bytes) -> None:
        sent = data.replace(KEY, self.product.key.encode())
        try:
            reply = await exchange(self.product.ports[0], sent)
        except TimeoutError:
            self.problems.append("no end of an answer")
        except (ValueError, IndexError) as error:
            self.problems.append(f"an answer that is no HTTP: {error}")
        else:
            problem = reply_problem(reply, head=data[:200])
            if problem:
                self.problems.append(problem)

    async def _frames(self, messages: list[bytes]) -> None:
        self._link += 1
        name = _name(self._link % NODES).encode()
        filled = {NODE: name, EPOCH: secrets.token_hex(8).encode()}
        headers = {"authorization": f"Bearer {self.credentials[self._link % NODES]}"}
        url = stack.fleet_url(HOST, self.product.ports[0])
        with contextlib.suppress(ConnectionClosed, InvalidHandshake, ConnectionError):
            async with (
                asyncio.timeout(LINK_S_MAX),
                connect(url, additional_headers=headers, max_size=FRAME_BYTES_MAX) as socket,
            ):
                for data in messages:
                    if JOB in data and JOB not in filled:
                        self.asked.append(asyncio.create_task(self._ask()))
                        filled[JOB] = await _job(socket)
                    for mark, text in filled.items():
                        data = data.replace(mark, text)
                    await socket.send(data)
                await _welcome(socket)

    async def _ask(self) -> None:
        """A stream from whichever node of the fuzzer is there; it has to end, no matter how."""
        body = {**make_body(tokens=5), "model": MODEL}
        answer = Answer(streamed=True)
        try:
            async with asyncio.timeout(FUZZED_S_MAX), open_client(self.product.urls[0]) as client:
                await ask(client, self.product.key, body, answer=answer)
        except TimeoutError:
            self.problems.append(f"a request to the fuzzer's node did not end: {answer}")
        if answer.error.get("code") == "internal_error":
            self.problems.append(f"a request to the fuzzer's node: {answer.error}")


def reply_problem(reply: Reply, *, head: bytes) -> str:
    """What is wrong with an answer; empty if nothing is."""
    told = f"{reply.status} {reply.body[:300]!r} to {head!r}"
    if reply.cut:
        return f"cut: {told}"
    if reply.status == UNAVAILABLE and "retry-after" not in reply.headers:
        return f"no Retry-After: {told}"
    stream = reply.headers.get("content-type", "").startswith("text/event-stream")
    if reply.status == 200 and stream:
        return "" if ENDS.search(reply.body) else _error_problem(reply, told)
    if reply.status >= 400 and reply.body:
        return _error_problem(reply, told)
    return ""


def _error_problem(reply: Reply, told: str) -> str:
    """The typed error of a body, or of the last event of a stream."""
    try:
        error = json.loads(reply.body.rpartition(b"\ndata: ")[2].removeprefix(b"data: "))["error"]
    except (ValueError, KeyError, TypeError):
        return f"no typed error: {told}"
    if set(error) < ERROR_KEYS:
        return f"not all keys: {told}"
    if reply.status >= 500 and reply.status != UNAVAILABLE and error["code"] not in SERVER_CODES:
        return f"a server's error: {told}"
    return ""


async def _job(socket: Any) -> bytes:
    """The id of the job that comes, or a made-up one where none does."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(JOB_WAIT_S):
            while True:
                frame = decode_from_gateway(await socket.recv())
                if isinstance(frame, Job):
                    return frame.request
    return secrets.token_bytes(len(JOB))


async def _welcome(socket: Any) -> None:
    """Read on until nothing comes, so that what was sent is dealt with before the link ends."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(JOB_WAIT_S):
            while not isinstance(decode_from_gateway(await socket.recv()), Welcome):
                pass
    await asyncio.sleep(0)


def _name(number: int) -> str:
    return NODE.decode().replace("@@", f"{number:02}")


@contextlib.contextmanager
def running_ground(servers: Servers) -> Iterator[Ground]:
    """The product with two tenants and the fuzzer's pool, until the block ends."""
    with running_product(servers, Plan(started=False, speculates=True)) as product:
        owner = user_create(actor=OPERATOR, email="probe@example.org")
        organization = organization_create(actor=OPERATOR, name="Probe", owner=owner)
        project = project_create(actor=OPERATOR, organization=organization, name="probe")
        made = apikey_create(actor=OPERATOR, project=project, label="probe")
        rate_limit_set(actor=OPERATOR, subject=made.key, **LIMITS)
        pool_set(actor=OPERATOR, draft=PoolDraft(name=POOL, task=DEMO_MODEL.task))
        draft = replace(DEMO_MODEL, name=MODEL, pool=POOL)
        price_publish(actor=OPERATOR, model=model_create(actor=OPERATOR, draft=draft), draft=PRICE)
        credentials = [
            node_credential_create(
                actor=OPERATOR, name=_name(number), pool=POOL, models=[MODEL]
            ).secret
            for number in range(NODES)
        ]
        product.start()
        product.wait_ready()
        yield Ground(product, made.secret, credentials)


@contextlib.asynccontextmanager
async def probing(ground: Ground) -> AsyncIterator[None]:
    """The other tenant asks until the block ends."""
    task = asyncio.create_task(ground.probe())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            # What is under way has no verdict.
            await task
