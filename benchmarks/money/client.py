"""One gateway's ledger under load, as a process of its own: `python -m benchmarks.money.client`.

Takes its `Orders` as one line of JSON, says `ready`, starts on the next line, and prints `Figures`.
Arrivals are closed (each client asks again when it is answered) or open (Poisson, whatever waits).
"""

from __future__ import annotations

import asyncio
import random
import resource
import sys
import time
from collections.abc import Awaitable
from typing import Protocol

import msgspec
import structlog
import uvloop

from controlplane.bridge.money.ledger import PostgresLedger
from controlplane.gateway.ports import Hold, Settlement
from controlplane.kernel.ids import new_request_id
from controlplane.kernel.price import Price
from tests.support.money import settlement_of
from tests.support.waiting import until

HELD_NANO, SPENT_NANO = 1_000, 700
PRICE = Price(version=1, input_pico=1_000, cached_pico=100, output_pico=4_000)
EXPIRES_S = 60
# Between hold and settlement, where arrivals are open.
WORK_S = (0.05, 0.15)
SAMPLES_MAX = 200_000


class Orders(msgspec.Struct, kw_only=True):
    """`clients` in a closed loop, or `per_s` requests a second; `payers` are (organization,
    project, key), each with a budget. Without `dsn` nothing is asked: the generator alone.
    """

    dsn: str = ""
    seconds: float
    clients: int = 0
    per_s: float = 0.0
    payers: list[tuple[str, str, str]]
    seed: int


class Figures(msgspec.Struct, kw_only=True):
    """What came of it; times in seconds, unordered."""

    requests: int
    errors: int
    cpu_s: float
    hold_s: list[float]
    settle_s: list[float]


class Money(Protocol):
    """The part of the Ledger port that is measured."""

    def hold(self, hold: Hold) -> Awaitable[None]:
        """Reserve."""

    def settle(self, settlement: Settlement) -> Awaitable[None]:
        """Charge."""


class Nothing:
    """Answers at once."""

    async def hold(self, hold: Hold) -> None:
        """Nothing is reserved."""
        await asyncio.sleep(0)

    async def settle(self, settlement: Settlement) -> None:
        """Nothing is charged."""
        await asyncio.sleep(0)


class Client:
    """Sends requests and keeps the times of those that ended within the measured span."""

    def __init__(self, money: Money, orders: Orders) -> None:
        self._money = money
        self._orders = orders
        self._chance = random.Random(orders.seed)
        self._hold_s: list[float] = []
        self._settle_s: list[float] = []
        self._errors = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> Figures:
        """Load for so many seconds, then until all under way is answered."""
        began_s = _cpu_s()
        until_s = time.perf_counter() + self._orders.seconds
        await (self._closed(until_s) if self._orders.clients else self._open(until_s))
        used_s = _cpu_s() - began_s
        await asyncio.gather(*self._tasks)
        return Figures(
            requests=len(self._settle_s),
            errors=self._errors,
            cpu_s=used_s,
            hold_s=self._hold_s[:SAMPLES_MAX],
            settle_s=self._settle_s[:SAMPLES_MAX],
        )

    async def _closed(self, until_s: float) -> None:
        async def client() -> None:
            while time.perf_counter() < until_s:
                await self._request()

        await asyncio.gather(*(client() for _ in range(self._orders.clients)))

    async def _open(self, until_s: float) -> None:
        due_s = time.perf_counter()
        while due_s < until_s:
            due_s += self._chance.expovariate(self._orders.per_s)
            await asyncio.sleep(max(0.0, due_s - time.perf_counter()))
            task = asyncio.create_task(self._request(self._chance.uniform(*WORK_S)))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _request(self, work_s: float = 0.0) -> None:
        hold = make_hold(self._chance.choice(self._orders.payers))
        try:
            began_s = time.perf_counter()
            await self._money.hold(hold)
            self._hold_s.append(time.perf_counter() - began_s)
            if work_s:
                await asyncio.sleep(work_s)
            began_s = time.perf_counter()
            await self._money.settle(settlement_of(hold, SPENT_NANO))
            self._settle_s.append(time.perf_counter() - began_s)
        except Exception:
            self._errors += 1


def make_hold(payer: tuple[str, str, str]) -> Hold:
    """A hold on all three levels."""
    organization, project, key = payer
    return Hold(
        request=new_request_id(),
        organization=organization,
        project=project,
        key=key,
        budgets=(key, project, organization),
        amount_nano=HELD_NANO,
        model="sluice-5m",
        price=PRICE,
        expires_s=EXPIRES_S,
    )


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def main() -> None:
    """One measurement."""
    loop = asyncio.get_running_loop()
    line = await loop.run_in_executor(None, sys.stdin.readline)
    orders = msgspec.json.decode(line, type=Orders)
    ledger = PostgresLedger(orders.dsn) if orders.dsn else None
    if ledger is not None:
        ledger.start()
        await until(lambda: not ledger.away)
    print("ready", flush=True)
    await loop.run_in_executor(None, sys.stdin.readline)
    figures = await Client(ledger or Nothing(), orders).run()
    print(msgspec.json.encode(figures).decode(), flush=True)
    if ledger is not None:
        await ledger.close()


if __name__ == "__main__":
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    uvloop.run(main())
