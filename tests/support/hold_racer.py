"""One gateway process of the race tests: all its holds at once, then it settles what it got.

Run as `python -m tests.support.hold_racer DSN AMOUNT COUNT BUDGET…`; starts on a line from standard
input and prints how many holds were admitted.
"""

from __future__ import annotations

import asyncio
import random
import sys
import uuid

import structlog

from controlplane.bridge.money.ledger import PostgresLedger
from controlplane.gateway.ports import BudgetExceeded, Hold
from tests.support.money import make_hold, settlement_of
from tests.support.waiting import until


async def race(dsn: str, amount: int, count: int, budgets: list[uuid.UUID]) -> int:
    """Holds admitted; half of them are settled in full at once, the others stay open."""
    ledger = PostgresLedger(dsn)
    ledger.start()
    await until(lambda: not ledger.away)
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    # Each names its budgets in another order: the functions must lock them in one.
    holds = [make_hold(amount, *random.sample(budgets, len(budgets))) for _ in range(count)]
    admitted = sum(await asyncio.gather(*(_try(ledger, hold) for hold in holds)))
    await ledger.close()
    return admitted


async def _try(ledger: PostgresLedger, hold: Hold) -> bool:
    try:
        await ledger.hold(hold)
    except BudgetExceeded:
        return False
    if hold.request[-1] % 2:
        await ledger.settle(settlement_of(hold, hold.amount_nano))
    return True


if __name__ == "__main__":
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    ids = [uuid.UUID(text) for text in sys.argv[4:]]
    print(asyncio.run(race(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), ids)), flush=True)
