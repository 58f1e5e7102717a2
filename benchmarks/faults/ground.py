"""The product that a campaign breaks, the requests it sends meanwhile, and what it checks then."""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace

import httpx2

from benchmarks.faults.network import Network
from tests.product.books import Bill, bills, expired, made_max, open_holds, sweep, wrong_bill
from tests.product.traffic import Answer, ask, make_body, open_client
from tests.support.product import (
    EXPIRED_S_MAX,
    Child,
    Plan,
    Product,
    running_product,
    verify_ledger,
)
from tests.support.servers import Servers

PLAN = Plan(gateways=3, nodes=8, sweeps=True)
TOKENS_PER_S = 100.0
TOKENS = 60
SEEN_MIN = 2
REQUESTS_PER_NODE = 3
# Longer than any promise here: what has not ended by then hangs.
ENDED_S_MAX = 25.0
# A new process, its link to each gateway, and the tokenizer; on two cores that others use, too.
RETURN_S_MAX = 20.0
# As docs/fleet.md states it: 10 s times the number of ejections, at most 5 minutes, a fifth more.
EJECTION_S, EJECTIONS_S_MAX, JITTER = 10.0, 300.0, 0.2
READY_S_MAX = 90.0
POLL_S = 0.02
OPENED = re.compile(r"breaker open name=(\S+) cause=\S+ ejections=(\d+)")


@dataclass
class Count:
    """What became of the faults of one kind. `lost` requests have no answer that they should have,
    `unbilled` ones showed tokens that no bill has, `doubled` ones are billed twice or for more than
    was made. `hung` are requests that did not end, and links of nodes that did not come back within
    the stated bound. `leaked` are jobs left open, and holds left open or left to the sweeper though
    a node had the request. `late` ended later than promised, beyond the stated slack.
    """

    tried: int = 0
    lost: int = 0
    doubled: int = 0
    hung: int = 0
    leaked: int = 0
    late: int = 0
    unbilled: int = 0

    def add(self, other: Count) -> None:
        """Take in the counts of another round."""
        for name, value in asdict(other).items():
            setattr(self, name, getattr(self, name) + value)

    @property
    def clean(self) -> bool:
        """Every fault went as promised, in the time that was promised."""
        return not any(value for name, value in asdict(self).items() if name != "tried")


@dataclass
class Ground:
    """Gateways, nodes behind a network that can be cut, and chance."""

    product: Product
    network: Network
    chance: random.Random
    notes: list[str] = field(default_factory=list)
    clients: list[httpx2.AsyncClient] = field(default_factory=list)
    expired: set[str] = field(default_factory=set)

    @property
    def gateways(self) -> int:
        """How many there are."""
        return len(self.product.gateways)

    @property
    def nodes(self) -> int:
        """How many there are."""
        return len(self.product.nodes)

    @property
    def requests(self) -> int:
        """How many keep all of them busy."""
        return REQUESTS_PER_NODE * self.nodes

    @property
    def at_once(self) -> int:
        """How many nodes fail together."""
        return self.nodes // 2

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
            client = self.clients[number % self.gateways]
            asked.send(client, self.product.key, answer, tokens=tokens)
        return asked

    async def returned(self) -> int:
        """Wait until every gateway serves from every node, and no breaker is open, within the time
        that breakers are stated to stay open; returns how many links are not back by then.
        """
        with contextlib.suppress(AssertionError):
            await until(lambda: not self._away(), RETURN_S_MAX + self._opened_s())
        away = self._away()
        if away:
            self.notes.append(f"{away} links of nodes are not back, or get no work")
        return away

    def answers_of(self, asked: Asked, gateways: Sequence[int]) -> list[Answer]:
        """Those that these gateways had, as `ask` spreads them; `requests` come out even."""
        return [a for number, a in enumerate(asked.answers) if number % self.gateways in gateways]

    def late(self, answers: Sequence[Answer], most_s: float, since_s: float | None = None) -> int:
        """How many ended later than so long after they began, or after `since_s`."""
        took = [each.ended_s - (each.began_s if since_s is None else since_s) for each in answers]
        late = [round(seconds, 2) for seconds in took if seconds > most_s]
        self.notes.append(f"the last ended after {max(took):.2f} s of {most_s:g} s, late: {late}")
        return len(late)

    def _away(self) -> int:
        return sum(self._away_from(number) for number in range(self.gateways))

    def _away_from(self, number: int) -> int:
        facts = self.product.readiness(number)
        if not facts.get("models"):
            return self.nodes
        return self.nodes - int(facts["nodes"]) + int(facts["nodes_ejected"])

    def _opened_s(self) -> float:
        """For how long any breaker may be open, as it is documented; gateways log each opening."""
        logs = [gateway.log for gateway in self.product.gateways]
        latest = [dict(OPENED.findall(log)).values() for log in logs]
        ejections = max((int(count) for counts in latest for count in counts), default=0)
        return min(EJECTION_S * ejections, EJECTIONS_S_MAX) * (1.0 + JITTER)

    async def check(
        self, asked: Asked, *, tried: int, whole: Callable[[Answer], bool], unsent: int = 0
    ) -> Count:
        """Count what went wrong with these; `whole` tells which had to be answered in full. Only of
        so many as are `unsent` can the hold be left to the sweeper: no node had their requests.
        """
        count = Count(tried=tried, hung=await self.returned())
        count.leaked = await self._leaks(unsent)
        booked = await asyncio.to_thread(bills)
        for answer in asked.answers:
            self._judge(answer, booked.get(answer.request), whole=whole(answer), count=count)
        await verify_ledger()
        return count

    def _judge(self, answer: Answer, bill: Bill | None, *, whole: bool, count: Count) -> None:
        seconds = answer.ended_s - answer.began_s
        wrong = wrong_bill(answer, bill, most=made_max(answer, TOKENS_PER_S))
        if whole and not answer.whole:
            wrong = wrong or "not answered in full"
            count.lost += 1
        count.hung += answer.broken == "hung"
        billed = 0 if bill is None else bill.output
        count.unbilled += billed < answer.tokens or answer.whole and bill is None
        count.doubled += bill is not None and (bill.charges != 1 or bool(wrong and billed))
        if wrong:
            self.notes.append(f"{wrong}: {answer.request} status={answer.status} {seconds:.2f} s"
                              f" error={answer.error} broken={answer.broken!r}")  # fmt: skip

    async def _leaks(self, unsent: int) -> int:
        """Jobs and holds that are still open once nothing is asked, and holds that were left to the
        sweeper beyond those that may.
        """
        with contextlib.suppress(AssertionError):
            await until(lambda: not self._open(), EXPIRED_S_MAX if unsent else ENDED_S_MAX)
        before, self.expired = self.expired, await asyncio.to_thread(expired)
        swept = len(self.expired - before)
        if swept or unsent:
            self.notes.append(f"{swept} holds expired, of {unsent} requests that no node had")
        return self._open() + max(0, swept - unsent)

    def _open(self) -> int:
        if not self.product.jobs:
            sweep()
        return self.product.under_way() + open_holds()


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


async def until(true: Callable[[], bool], within_s: float) -> float:
    """Wait for it without holding up the loop; the seconds that took. Fails after the bound."""
    began_s = time.monotonic()
    while not await asyncio.to_thread(true):
        waited_s = time.monotonic() - began_s
        assert waited_s < within_s, f"not true within {within_s:g} s"
        await asyncio.sleep(POLL_S)
    return time.monotonic() - began_s


@contextlib.contextmanager
def running_ground(servers: Servers, *, seed: int, plan: Plan = PLAN) -> Iterator[Ground]:
    """All of it, until the block ends; frozen nodes are thawed for their end."""
    with Network() as network:
        plan = replace(plan, tokens_per_s=TOKENS_PER_S, dial=network.dial)
        with running_product(servers, plan) as product:
            try:
                yield Ground(product, network, random.Random(seed))
            finally:
                for node in product.nodes:
                    network.mend(node.name)
                    if node.alive:
                        node.signal(signal.SIGCONT)
