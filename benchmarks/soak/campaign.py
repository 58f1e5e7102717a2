"""The soak itself: a fault now and then under traffic, and all books at its end."""

from __future__ import annotations

import asyncio
import contextlib
import random
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import redis
from django.conf import settings

from benchmarks.money.kills import difference_nano, price_charged
from benchmarks.soak.targets import ACTIONS, ChildTarget, Target, running_jobs, server_targets
from benchmarks.soak.traffic import TOKENS_MAX, Asked, Traffic
from controlplane.core.jobs.heartbeat import is_alive, worker_name
from tests.product.books import bills, open_holds, wrong_bill
from tests.support.product import (
    EXPIRED_S_MAX,
    SHORT_HOLDS,
    Plan,
    Product,
    running_product,
    verify_ledger,
)
from tests.support.servers import Servers
from tests.support.waiting import until

GATEWAYS, NODES = 2, 2
TOKENS_PER_S = 60.0
# Within this every part works again, whatever happened to it.
RECOVERED_S_MAX = 60.0
# Traffic before anything is measured, and without it until connections that idle have ended.
WARM_S, QUIET_S = 8.0, 3.0
# Connections that idle are closed within this, also by processes on a slow machine.
RELEASED_S_MAX = 60.0
PAUSE_S_MIN = 1.0
# What a part may have more at the end than at the beginning: young processes grow for a while, and
# what ended connections of Celery's leave, its pollers first, waits for the garbage collector.
RSS_GROWTH_MIB_MAX = 64.0
DESCRIPTORS_GROWTH_MAX = 16
# Limits are refused while Redis is away, everything that is billed while PostgreSQL is.
AGAIN_LATER = (429, 503)
NOTES_MAX = 20
# What a request may be told that was under way when a node failed.
# Its end is withheld where the charge could not be written in time: that is never to be repeated.
TOLD = frozenset(
    {"node_lost", "idempotency_charged", "idempotency_in_progress", "ledger_unavailable"}
)
REPLAYED = "x-sluice-idempotent-replay"
SIGNS: dict[str, Callable[[], str]] = {"worker": worker_name, "beat": str}


@dataclass
class Soak:
    """A product in trouble: what it answered, when each gateway was away, what was wrong."""

    product: Product
    traffic: Traffic
    targets: list[Target]
    faults: int = 0
    notes: list[str] = field(default_factory=list)
    recovery_s: dict[str, list[float]] = field(default_factory=dict)
    away: list[tuple[int, float, float]] = field(default_factory=list)

    async def run(self, seconds: float, chance: random.Random, faults: int) -> dict[str, Any]:
        """At least so many faults until the time is over, each part and each action in turns."""
        # A worker or a beat that has yet to do its first work would seem to grow by it.
        await asyncio.to_thread(_forget_signs)
        for target in self.targets:
            await until(partial(self._works, target), RECOVERED_S_MAX)
        await asyncio.sleep(WARM_S)
        before = await self._used()
        self.traffic.resume()
        began_s = time.monotonic()
        gap_s = seconds / (len(self.targets) * len(ACTIONS))
        first = chance.randrange(len(ACTIONS))
        while (passed_s := time.monotonic() - began_s) < seconds or self.faults < faults:
            target = self.targets[self.faults % len(self.targets)]
            turn = self.faults + self.faults // len(self.targets) + first
            await self._fault(target, ACTIONS[turn % len(ACTIONS)])
            rest_s = self.faults * gap_s - (time.monotonic() - began_s)
            await asyncio.sleep(max(PAUSE_S_MIN, min(rest_s, seconds - passed_s)))
        minutes = round((time.monotonic() - began_s) / 60, 2)
        await self.traffic.pause()
        await self._settled()
        growth = await self._growth(before)
        return {"minutes": minutes, **await self._figures(), "growth": growth}

    async def _growth(self, before: dict[str, tuple[float, int]]) -> dict[str, dict[str, float]]:
        """Of every part since then. What is let go only after a while has not leaked."""
        ends_s = time.monotonic() + RELEASED_S_MAX
        while True:
            used = await self._used()
            growth: dict[str, dict[str, float]] = {
                name: {"rss_mib": round(used[name][0] - mib, 1), "fd": used[name][1] - descriptors}
                for name, (mib, descriptors) in before.items()
            }
            most = max(each["fd"] for each in growth.values())
            if most <= DESCRIPTORS_GROWTH_MAX or time.monotonic() >= ends_s:
                return growth

    async def _fault(self, target: Target, action: str) -> None:
        kind = f"{target.name} {action}"
        began_s = time.monotonic()
        number = int(target.name[-1]) - 1 if target.name.startswith("gateway") else None
        await asyncio.to_thread(target.fail, action)
        back_s = time.monotonic()
        if target.name in SIGNS:
            await asyncio.to_thread(_forget_signs)
        try:
            await until(lambda: self._works(target), RECOVERED_S_MAX)
        except TimeoutError:
            self.notes.append(f"{kind}: not back within {RECOVERED_S_MAX:g} s")
        now_s = time.monotonic()
        self.recovery_s.setdefault(kind, []).append(now_s - back_s)
        if number is not None:
            self.away.append((number, began_s, now_s))
        self.faults += 1
        print(
            f"{kind:22} away {back_s - began_s:5.1f} s, works after {now_s - back_s:6.2f} s more;"
            f" {len(self.traffic.asked)} requests so far",
            flush=True,
        )

    async def _works(self, target: Target) -> bool:
        """Jobs give a sign of life; with all else each gateway answers, from every node."""
        if target.name in SIGNS:
            return await asyncio.to_thread(is_alive, target.name, SIGNS[target.name]())
        for number in range(GATEWAYS):
            facts = await asyncio.to_thread(self.product.readiness, number)
            nodes = (facts.get("nodes"), facts.get("nodes_ejected"))
            if nodes != (NODES, 0) or not facts.get("limits_shared"):
                return False
            if not await self.traffic.probe(number):
                return False
        return True

    async def _used(self) -> dict[str, tuple[float, int]]:
        """Of every part, while nothing is asked."""
        await self.traffic.pause()
        await asyncio.sleep(QUIET_S)
        used = {target.name: await asyncio.to_thread(target.used) for target in self.targets}
        return used

    async def _settled(self) -> None:
        """The product itself resolves what was under way; nothing here helps it."""
        with contextlib.suppress(TimeoutError):
            await until(lambda: open_holds() == 0, EXPIRED_S_MAX)

    async def _figures(self) -> dict[str, Any]:
        booked = await asyncio.to_thread(bills)
        price = await asyncio.to_thread(price_charged)
        lost = doubled = hung = difference = 0
        charged: dict[str, int] = {}
        for asked in self.traffic.asked:
            answer, bill = asked.answer, booked.get(asked.answer.request)
            replayed = bill is None and REPLAYED in answer.headers
            hung += answer.broken == "hung"
            doubled += bill is not None and bill.charges != 1
            if asked.key and bill is not None:
                charged[asked.key] = charged.get(asked.key, 0) + 1
            wrong = self._unexplained(asked) or (
                "" if replayed else wrong_bill(answer, bill, most=TOKENS_MAX)
            )
            if wrong:
                lost += 1
                self.notes.append(f"{wrong}: {answer}")
            elif answer.whole and bill is not None:
                difference += difference_nano(price, answer, bill)
        doubled += sum(count > 1 for count in charged.values())
        try:
            verified = await verify_ledger()
        except AssertionError as error:
            verified = ""
            self.notes.append(str(error))
        return {
            "faults": self.faults,
            "requests": len(self.traffic.asked),
            "lost": lost,
            "doubled": doubled,
            "hung": hung,
            "leaked": await asyncio.to_thread(open_holds),
            "difference_nano_usd": difference,
            "ledger_verified": bool(verified),
            "each_fault": [
                {"fault": kind, "recovery_s": round(value, 2)}
                for kind, values in self.recovery_s.items()
                for value in values
            ],
            "recovery_s": {
                kind: round(statistics.median(each), 2) for kind, each in self.recovery_s.items()
            },
        }

    def _unexplained(self, asked: Asked) -> str:
        """An answer that is neither whole nor one that a client can act on."""
        answer = asked.answer
        code = answer.error.get("code")
        if answer.whole or asked.left or answer.broken == "hung" or code in TOLD:
            return ""
        if answer.status in AGAIN_LATER and "retry-after" in answer.headers:
            return ""
        if any(
            number == asked.gateway and answer.began_s < until_s and answer.ended_s > from_s
            for number, from_s, until_s in self.away
        ):
            return ""
        return "no answer that a client can act on"


def _forget_signs() -> None:
    """What a part told of itself before it failed."""
    with redis.Redis.from_url(str(settings.REDIS_URL)) as connection:
        for key in connection.scan_iter("sluice:alive:*"):
            connection.delete(key)


@contextlib.contextmanager
def running_soak(servers: Servers) -> Iterator[tuple[Product, list[Target]]]:
    """Everything that `make run` starts, with two gateways and two nodes that echo."""
    plan = Plan(
        gateways=GATEWAYS,
        nodes=NODES,
        tokens_per_s=TOKENS_PER_S,
        gateway_env=lambda number: SHORT_HOLDS,
    )
    with (
        TemporaryDirectory(prefix="sluice-soak-") as folder,
        running_product(servers, plan) as product,
        running_jobs(Path(folder)) as jobs,
    ):
        yield (
            product,
            [
                *jobs,
                ChildTarget("node-1", product.nodes[0]),
                ChildTarget("gateway-1", product.gateways[0]),
                *server_targets(servers),
            ],
        )


async def _soak(
    product: Product, targets: list[Target], seconds: float, chance: random.Random, faults: int
) -> tuple[dict[str, Any], list[str]]:
    async with Traffic(product.urls, product.key, chance) as traffic:
        running = Soak(product, traffic, targets)
        figures = await running.run(seconds, chance, faults)
        print(f"\nanswers: {dict(traffic.count())}")
    return figures, running.notes


def soak(servers: Servers, seconds: float, seed: int, faults: int = 0) -> dict[str, Any]:
    """At least so many faults, as the last line tells them; prints what was wrong."""
    with running_soak(servers) as (product, targets):
        figures, notes = asyncio.run(_soak(product, targets, seconds, random.Random(seed), faults))
    growth = figures["growth"].values()
    figures["rss_growth_mib"] = max(each["rss_mib"] for each in growth)
    figures["fd_growth"] = max(each["fd"] for each in growth)
    figures["seed"] = seed
    wrong = sum(figures[key] for key in ("lost", "doubled", "hung", "leaked"))
    figures["clean"] = bool(
        not wrong
        and not notes
        and not figures["difference_nano_usd"]
        and figures["rss_growth_mib"] <= RSS_GROWTH_MIB_MAX
        and figures["fd_growth"] <= DESCRIPTORS_GROWTH_MAX
    )
    print(*notes[:NOTES_MAX], sep="\n")
    return figures
