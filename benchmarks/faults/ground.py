"""The product that a campaign breaks, the requests it sends meanwhile, and what it checks then."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field

import httpx2

from benchmarks.faults.network import Network
from controlplane.billing.services import sweep_holds
from tests.product.books import Bill, bills, open_holds
from tests.product.traffic import Answer, ask, make_body, open_client
from tests.support.money import rows
from tests.support.orm import orm
from tests.support.product import Child, Plan, Product, running_product, verify_ledger
from tests.support.servers import Servers

GATEWAYS = 3
NODES = 8
TOKENS_PER_S = 100.0
TOKENS = 60
SEEN_MIN = 2
REQUESTS = 3 * NODES
# Longer than any promise here: what has not ended by then hangs.
ENDED_S_MAX = 25.0
SETTLED_S_MAX = 20.0
READY_S_MAX = 90.0
# A report is repeated every 5 s, and at once on a new link.
REPORTED_S_MAX = 6.0
POLL_S = 0.02


@dataclass
class Count:
    """What became of the faults of one kind. `lost` requests have no answer that they should have,
    or no right bill; `hung` ones did not end at all; `leaked` are jobs and holds left open. `late`
    ended later than promised, or are nodes that traffic did not leave in time: on a machine that
    others use, too, they say more of that.
    """

    tried: int = 0
    lost: int = 0
    doubled: int = 0
    hung: int = 0
    leaked: int = 0
    late: int = 0

    def add(self, other: Count) -> None:
        """Take in the counts of another round."""
        for name, value in asdict(other).items():
            setattr(self, name, getattr(self, name) + value)

    @property
    def clean(self) -> bool:
        """Every fault went as promised, whatever time it took."""
        return not (self.lost or self.doubled or self.hung or self.leaked)


@dataclass
class Ground:
    """Gateways, nodes behind a network that can be cut, and chance."""

    product: Product
    network: Network
    chance: random.Random
    notes: list[str] = field(default_factory=list)
    clients: list[httpx2.AsyncClient] = field(default_factory=list)

    @contextlib.asynccontextmanager
    async def round(self) -> AsyncIterator[None]:
        """What a round needs of its own loop: clients, whose making takes long."""
        async with contextlib.AsyncExitStack() as stack:
            urls = self.product.urls
            self.clients = [await stack.enter_async_context(open_client(url)) for url in urls]
            for client in self.clients:
                # One kept alive may be closed by its server just as it is used again.
                client.headers["connection"] = "close"
            yield

    def victims(self, count: int) -> list[Child]:
        """Some of the nodes, never all."""
        return self.chance.sample(self.product.nodes, count)

    def ask(self, count: int, *, tokens: int = TOKENS, streams: Sequence[bool] = (True,)) -> Asked:
        """Send requests at once, to all gateways in turn."""
        asked = Asked([Answer(streamed=streams[n % len(streams)]) for n in range(count)])
        for number, answer in enumerate(asked.answers):
            client = self.clients[number % GATEWAYS]
            asked.send(client, self.product.key, answer, tokens=tokens)
        return asked

    async def wait_whole(self) -> None:
        """Every gateway serves from every node, and no breaker is open.

        A node that a busy machine made slow again and again is out for minutes, rightly; here it is
        started anew, since a new process is a new chance.
        """
        try:
            await until(self._all_whole, SETTLED_S_MAX)
        except AssertionError:
            for node in self.product.nodes:
                node.kill()
                node.start()
            await until(self._all_whole, READY_S_MAX)

    def _all_whole(self) -> bool:
        return all(self._whole(number) for number in range(GATEWAYS))

    def _whole(self, number: int) -> bool:
        facts = self.product.readiness(number)
        nodes = (facts.get("nodes"), facts.get("nodes_ejected"))
        return bool(facts.get("models")) and nodes == (NODES, 0)

    async def check(self, asked: Asked, *, tried: int, whole: Callable[[Answer], bool]) -> Count:
        """Count what went wrong with these; `whole` tells which had to be answered in full."""
        count = Count(tried=tried, leaked=await self._leaks())
        booked = await asyncio.to_thread(bills)
        for answer in asked.answers:
            bill = booked.get(answer.request)
            count.hung += answer.broken == "hung"
            count.doubled += bill is not None and bill.charges != 1
            wrong = self.problem(answer, bill, whole=whole(answer))
            if wrong:
                count.lost += 1
                self.notes.append(f"{wrong}: {answer.request} status={answer.status}"
                                  f" error={answer.error} broken={answer.broken!r}")  # fmt: skip
        await verify_ledger()
        return count

    @staticmethod
    def problem(answer: Answer, bill: Bill | None, *, whole: bool) -> str:
        """What is wrong with an answer and its bill; empty if nothing is."""
        if whole and not answer.whole:
            return "not answered in full"
        if answer.whole and (bill is None or bill.output != answer.tokens):
            return f"complete with {answer.tokens} tokens, and the bill is {bill}"
        if bill is not None and bill.output < answer.tokens:
            return f"showed {answer.tokens} tokens, and the bill is {bill}"
        told = answer.error.get("code") == "node_lost" and answer.streamed
        if told and (bill is None or bill.output != answer.tokens):
            return f"ended after {answer.tokens} tokens, and the bill is {bill}"
        return ""

    async def _leaks(self) -> int:
        """Jobs and holds that are still open once nothing is asked."""
        with contextlib.suppress(AssertionError):
            await until(lambda: not self._open(), ENDED_S_MAX)
        return self._open()

    def _open(self) -> int:
        jobs = sum(int(self.product.readiness(n).get("jobs", 0)) for n in range(GATEWAYS))
        return jobs + open_holds()

    async def reported(self) -> None:
        """Nodes report what they did for a dead gateway; what no node had expires when due."""
        with contextlib.suppress(AssertionError):
            await until(lambda: not open_holds(), REPORTED_S_MAX)
        rows("UPDATE open_holds SET expires_at = now() - interval '1 s'")
        await orm(sweep_holds)()


class Asked:
    """Requests under way, whose answers can be looked at while they come."""

    def __init__(self, answers: list[Answer]) -> None:
        self.answers = answers
        self._tasks: list[asyncio.Task[None]] = []

    def send(self, client: httpx2.AsyncClient, key: str, answer: Answer, *, tokens: int) -> None:
        """Begin one."""
        self._tasks.append(asyncio.create_task(_ask(client, key, answer, tokens)))

    @property
    def ended(self) -> int:
        """How many have their end."""
        return sum(task.done() for task in self._tasks)

    def join(self, other: Asked) -> None:
        """Look at another's as well."""
        self.answers += other.answers
        self._tasks += other._tasks

    async def seen(self, tokens: int) -> None:
        """Wait until every stream has shown so many tokens, or has ended."""
        pairs = list(zip(self.answers, self._tasks, strict=True))
        await until(
            lambda: all(a.tokens >= tokens or t.done() for a, t in pairs if a.streamed),
            ENDED_S_MAX,
        )

    async def done(self) -> None:
        """Wait for all of them; those that hang are marked so."""
        await asyncio.gather(*self._tasks)


async def _ask(client: httpx2.AsyncClient, key: str, answer: Answer, tokens: int) -> None:
    try:
        async with asyncio.timeout(ENDED_S_MAX):
            body = make_body(tokens=tokens, stream=answer.streamed)
            await ask(client, key, body, answer=answer)
    except TimeoutError:
        answer.broken = "hung"
        answer.ended_s = time.monotonic()


async def until(true: Callable[[], bool], within_s: float) -> float:
    """Wait for it without holding up the loop; the seconds that took. Fails after the bound."""
    began_s = time.monotonic()
    while not await asyncio.to_thread(true):
        waited_s = time.monotonic() - began_s
        assert waited_s < within_s, f"not true within {within_s:g} s"
        await asyncio.sleep(POLL_S)
    return time.monotonic() - began_s


@contextlib.contextmanager
def running_ground(servers: Servers, *, seed: int) -> Iterator[Ground]:
    """All of it, until the block ends; frozen nodes are thawed for their end."""
    with Network() as network:
        plan = Plan(gateways=GATEWAYS, nodes=NODES, tokens_per_s=TOKENS_PER_S, dial=network.dial)
        with running_product(servers, plan) as product:
            try:
                yield Ground(product, network, random.Random(seed))
            finally:
                for node in product.nodes:
                    network.mend(node.name)
                    if node.alive:
                        node.signal(signal.SIGCONT)
