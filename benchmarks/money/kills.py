"""Gateways killed at named points of their commits, under load, and every bill compared after it.

Resumable as `bench-faults` is: a state file keeps what was counted.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from django.conf import settings

from benchmarks.kept import Kept, load, save
from benchmarks.money.tap import POINTS, Tap
from controlplane.core.database_roles import password_of
from controlplane.kernel.price import Price, TokenCounts, charge_nano
from tests.product.books import Bill, bills, expired, made_max, swept, wrong_bill
from tests.product.traffic import Answer, Load
from tests.support.money import rows
from tests.support.product import Plan, Product, running_product, verify_ledger
from tests.support.servers import Servers
from tests.support.waiting import wait_for

GATEWAYS = 3
NODES = 2
TOKENS_PER_S = 200.0
SEED = 20261122
# Kills between two comparisons of all books.
ROUND = 18
FIRES_S_MAX = 20.0
READY_S_MAX = 60.0


class State(Kept, kw_only=True):
    """What all rounds have counted. `missing` answers showed tokens that are not on the ledger,
    `doubled` are there more than once or with more than was delivered; the difference is between
    what clients were told to have used, priced, and what was charged for it. `expired` holds were
    of requests that no node had.
    """

    tried: int = 0
    answers: int = 0
    missing: int = 0
    doubled: int = 0
    difference_nano_usd: int = 0
    expired: int = 0
    points: dict[str, int] = msgspec.field(default_factory=dict)

    @property
    def wrong(self) -> dict[str, int]:
        """What has to be nothing."""
        difference = self.difference_nano_usd
        return {"missing": self.missing, "doubled": self.doubled, "nano-USD": difference}


@dataclass
class Ground:
    """Gateways whose way to PostgreSQL leads through a tap each."""

    product: Product
    taps: list[Tap]
    chance: random.Random

    async def kill(self, number: int, point: str) -> bool:
        """Kill a gateway there, and start it; False where it never came to that point."""
        gateway, tap = self.product.gateways[number], self.taps[number]
        await asyncio.to_thread(wait_for, lambda: self._serves(number), "gateway", READY_S_MAX)
        tap.arm(point)
        fired = await asyncio.to_thread(tap.fired.wait, FIRES_S_MAX)
        if fired:
            await asyncio.to_thread(gateway.wait)
            gateway.start()
        return fired

    async def _kill(self, state: State, number: int, points: Sequence[str]) -> None:
        for point in points:
            if await self.kill(number, point):
                state.tried += 1
                state.points[point] = state.points.get(point, 0) + 1

    def _serves(self, number: int) -> bool:
        facts = self.product.readiness(number)
        return bool(facts.get("ready") and facts.get("nodes") == NODES and facts.get("models"))

    async def round(self, state: State, kills: int) -> None:
        """So many kills under load, each gateway at its own points in turn; then all books."""
        product, before, tried = self.product, expired(), state.tried
        points = [POINTS[(tried + number) % len(POINTS)] for number in range(kills)]
        async with Load(product.urls, product.key, seed=self.chance.randrange(2**30)) as load:
            await asyncio.gather(
                *(self._kill(state, number, points[number::GATEWAYS]) for number in range(GATEWAYS))
            )
        assert state.tried > tried, "no gateway came to any of its points"
        state.expired += await swept(product, load.answers, before)
        counted = state.wrong
        told = compare(load.answers, state)
        for what, number in state.wrong.items():
            state.lose(f"gateway killed: {what}", number - counted[what], told)
        await verify_ledger()


def compare(answers: list[Answer], state: State) -> list[str]:
    """Every answer beside its charge; a complete one to the nano-USD. Says what was wrong."""
    told: list[str] = []
    booked = bills()
    price = price_charged()
    for answer in answers:
        bill = booked.get(answer.request)
        state.missing += (0 if bill is None else bill.output) < answer.tokens
        wrong = wrong_bill(answer, bill, most=made_max(answer, TOKENS_PER_S))
        state.doubled += bill is not None and bool(bill.charges != 1 or wrong)
        if wrong:
            told.append(f"{wrong}: {answer.request} {answer.broken}")
            print(told[-1])
        if not answer.whole:
            continue
        state.answers += 1
        if bill is None:
            continue
        state.difference_nano_usd += difference_nano(price, answer, bill)
    return told


def difference_nano(price: Price, answer: Answer, bill: Bill) -> int:
    """Between what a client was told to have used, priced, and what was charged for it."""
    usage = answer.usage or {}
    cached = usage.get("prompt_tokens_details", {}).get("cached_tokens", 0)
    counts = TokenCounts.from_usage(usage["prompt_tokens"], cached, usage["completion_tokens"])
    return abs(bill.nano - charge_nano(price, counts))


def price_charged() -> Price:
    """The only price that anything was charged at."""
    (row,) = rows(
        "SELECT DISTINCT price_version, input_pico, cached_pico, output_pico FROM transfers"
    )
    version, input_pico, cached_pico, output_pico = row
    return Price(
        version=version, input_pico=input_pico, cached_pico=cached_pico, output_pico=output_pico
    )


@contextlib.contextmanager
def running_ground(servers: Servers, *, seed: int, sweeps: bool = True) -> Iterator[Ground]:
    """Gateways behind taps, nodes, and load's own key, until the block ends."""
    with contextlib.ExitStack() as stack:
        folders = []
        for _ in range(GATEWAYS):
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="sluice-tap-"))
            folders.append(Path(folder))
        plan = Plan(
            gateways=GATEWAYS,
            nodes=NODES,
            tokens_per_s=TOKENS_PER_S,
            started=False,
            sweeps=sweeps,
            gateway_env=lambda number: _through(folders[number]),
        )
        product = stack.enter_context(running_product(servers, plan))
        taps = [
            stack.enter_context(Tap(folder, servers.layout.sockets, gateway.send_kill))
            for folder, gateway in zip(folders, product.gateways, strict=True)
        ]
        product.mend()
        try:
            yield Ground(product, taps, random.Random(seed))
        finally:
            # Before their way to PostgreSQL ends.
            for child in (*product.nodes, *product.gateways):
                child.stop()


def _through(folder: Path) -> Mapping[str, str]:
    """The gateway's role on the socket of its tap."""
    entry = settings.DATABASES["gateway"]
    url = f"postgresql://{entry['USER']}:{password_of(entry)}@/{entry['NAME']}?host={folder}"
    return {"DATABASE_GATEWAY_URL": url}


def campaign(servers: Servers, kills: int, until_s: float, path: Path) -> State:
    """Go on until there are so many kills, or until the clock says so."""
    state = load(path, State)
    if state.tried >= kills:
        return state
    with running_ground(servers, seed=SEED + state.tried) as ground:
        while state.tried < kills and time.monotonic() < until_s:
            asyncio.run(ground.round(state, min(ROUND, kills - state.tried)))
            save(state, path)
            print(f"gateways killed {state.tried}/{kills}, complete answers {state.answers}")
    return state
