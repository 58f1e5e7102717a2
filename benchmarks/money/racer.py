"""One gateway of the races: `python -m benchmarks.money.racer DSN REDIS_URL`.

For each line of JSON, a `Race`, it asks for all of its requests at once, as stage 1 does: the
limits first, then the hold. It prints how many were served; each costs exactly what it held.
"""

from __future__ import annotations

import asyncio
import sys

import msgspec
import structlog
import uvloop

from benchmarks.money.client import HELD_NANO, make_hold
from controlplane.bridge.limits.limiter import RedisLimiter
from controlplane.bridge.money.ledger import PostgresLedger
from controlplane.gateway.ports import BudgetExceeded
from controlplane.gateway.snapshot import EMPTY
from tests.support.money import settlement_of
from tests.support.racer import gateways_of, limited_key
from tests.support.waiting import until

PER_MINUTE = 10**9
GATEWAYS = 8
CONNECT_S_MAX = 20.0


class Race(msgspec.Struct, kw_only=True):
    """Who pays, and for how many at once."""

    payer: tuple[str, str, str]
    parallel: int


class Racer:
    """A ledger and a limiter, as in a gateway."""

    def __init__(self, dsn: str, redis_url: str) -> None:
        self._ledger = PostgresLedger(dsn)
        self._limiter = RedisLimiter(
            redis_url, snapshot=lambda: EMPTY, gateways=gateways_of(GATEWAYS)
        )

    async def start(self) -> None:
        """Connected to both on return."""
        self._ledger.start()
        self._limiter.start()
        await until(lambda: not self._ledger.away, CONNECT_S_MAX)
        await self._limiter.wait_shared(CONNECT_S_MAX)

    async def race(self, race: Race) -> int:
        """How many were served."""
        return sum(await asyncio.gather(*(self._serve(race.payer) for _ in range(race.parallel))))

    async def _serve(self, payer: tuple[str, str, str]) -> bool:
        allowance = await self._limiter.take(limited_key(requests=PER_MINUTE), 1)
        if not allowance.allowed:
            raise RuntimeError("a limit that nobody reaches was reached")
        hold = make_hold(payer)
        try:
            await self._ledger.hold(hold)
        except BudgetExceeded:
            return False
        finally:
            self._limiter.release(allowance)
        await self._ledger.settle(settlement_of(hold, HELD_NANO))
        return True


async def main() -> None:
    """Races until standard input ends."""
    loop = asyncio.get_running_loop()
    racer = Racer(sys.argv[1], sys.argv[2])
    await racer.start()
    print("ready", flush=True)
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        print(await racer.race(msgspec.json.decode(line, type=Race)), flush=True)


if __name__ == "__main__":
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    uvloop.run(main())
