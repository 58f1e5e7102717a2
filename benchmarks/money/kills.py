"""Gateways killed at named points of their commits, under load, and every bill compared after it.

Resumable as `bench-faults` is: a state file keeps what was counted.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
from django.conf import settings

from benchmarks.money.tap import POINTS, Tap
from controlplane.billing.services import sweep_holds
from controlplane.kernel.price import Price, TokenCounts, charge_nano
from tests.product.books import bills, open_holds
from tests.product.traffic import Answer, Load
from tests.support.money import eventually, rows
from tests.support.orm import orm
from tests.support.product import Plan, Product, running_product, verify_ledger, wait_for
from tests.support.servers import Servers

GATEWAYS = 3
NODES = 2
TOKENS_PER_S = 200.0
SEED = 20261122
# Kills between two comparisons of all books.
ROUND = 18
FIRES_S_MAX = 20.0
READY_S_MAX = 60.0
REPORTED_S_MAX = 12.0


class State(msgspec.Struct):
    """What all rounds have counted. `missing` answers were complete and are not on the ledger,
    `doubled` are there more than once; the difference is between what clients were told to have
    used, priced, and what was charged for it.
    """

    tried: int = 0
    answers: int = 0
    missing: int = 0
    doubled: int = 0
    difference_nano_usd: int = 0
    points: dict[str, int] = msgspec.field(default_factory=dict)


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

    def _serves(self, number: int) -> bool:
        facts = self.product.readiness(number)
        return bool(facts.get("ready") and facts.get("nodes") == NODES and facts.get("models"))

    async def round(self, state: State, kills: int) -> None:
        """So many kills under load, then all books."""
        product = self.product
        async with Load(product.urls, product.key, seed=self.chance.randrange(2**30)) as load:
            for number in range(kills):
                point = POINTS[state.tried % len(POINTS)]
                if await self.kill(number % GATEWAYS, point):
                    state.tried += 1
                    state.points[point] = state.points.get(point, 0) + 1
        await self._settled()
        compare(load.answers, state)
        await verify_ledger()

    async def _settled(self) -> None:
        """Nodes report what they did for a dead gateway; what no node had expires when due."""
        with contextlib.suppress(AssertionError):
            await eventually(lambda: not open_holds(), REPORTED_S_MAX)
        rows("UPDATE open_holds SET expires_at = now() - interval '1 s'")
        await orm(sweep_holds)()


def compare(answers: list[Answer], state: State) -> None:
    """Every complete answer beside its charge."""
    booked = bills()
    price = _price()
    for answer in answers:
        bill = booked.get(answer.request)
        state.doubled += bill is not None and bill.charges != 1
        if not answer.whole:
            continue
        state.answers += 1
        if bill is None:
            state.missing += 1
            continue
        usage = answer.usage or {}
        cached = usage.get("prompt_tokens_details", {}).get("cached_tokens", 0)
        counts = TokenCounts.from_usage(usage["prompt_tokens"], cached, usage["completion_tokens"])
        state.difference_nano_usd += abs(bill.nano - charge_nano(price, counts))


def _price() -> Price:
    (row,) = rows(
        "SELECT DISTINCT price_version, input_pico, cached_pico, output_pico FROM transfers"
    )
    version, input_pico, cached_pico, output_pico = row
    return Price(
        version=version, input_pico=input_pico, cached_pico=cached_pico, output_pico=output_pico
    )


@contextlib.contextmanager
def running_ground(servers: Servers, *, seed: int) -> Iterator[Ground]:
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
            gateway_env=lambda number: _through(folders[number]),
        )
        product = stack.enter_context(running_product(servers, plan))
        taps = [
            stack.enter_context(Tap(folder, servers.layout.sockets, gateway.send_kill))
            for folder, gateway in zip(folders, product.gateways, strict=True)
        ]
        product.start()
        product.wait_ready()
        yield Ground(product, taps, random.Random(seed))


def _through(folder: Path) -> Mapping[str, str]:
    """The gateway's role on the socket of its tap."""
    entry = settings.DATABASES["gateway"]
    url = f"postgresql://{entry['USER']}:{entry['PASSWORD']}@/{entry['NAME']}?host={folder}"
    return {"DATABASE_GATEWAY_URL": url}


def campaign(servers: Servers, kills: int, until_s: float, path: Path) -> State:
    """Go on until there are so many kills, or until the clock says so."""
    state = load(path)
    if state.tried >= kills:
        return state
    with running_ground(servers, seed=SEED + state.tried) as ground:
        while state.tried < kills and time.monotonic() < until_s:
            asyncio.run(ground.round(state, min(ROUND, kills - state.tried)))
            save(state, path)
            print(f"gateways killed {state.tried}/{kills}, complete answers {state.answers}")
    return state


def load(path: Path) -> State:
    """What earlier runs have counted."""
    return msgspec.json.decode(path.read_bytes(), type=State) if path.exists() else State()


def save(state: State, path: Path) -> None:
    """Whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    fresh.write_bytes(msgspec.json.encode(state))
    os.replace(fresh, path)
