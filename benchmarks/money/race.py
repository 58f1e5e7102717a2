"""Money for exactly seven, asked for by many processes at once, round after round.

The processes have the ledger and limiter of a gateway, and nothing else of it: no HTTP, no node.

The short level moves from key to project to organization. From the middle of the rounds on Redis is
dead: it is killed while a round runs.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import uuid
from contextlib import ExitStack
from typing import Any

import msgspec
from django.conf import settings

from benchmarks.money.client import HELD_NANO
from benchmarks.money.racer import GATEWAYS, Race
from controlplane.embedded.redis_server import RedisServer
from tests.support.money import add_budget, dsn, rows

PARALLEL = 200
MONEY_FOR = 7
SCOPES = ("key", "project", "organization")
AMPLE_NANO = 10**15
KILL_AFTER_S = 0.05


def races(rounds: int, redis: RedisServer) -> dict[str, Any]:
    """Counts over all rounds; Redis is started again at the end."""
    served: set[int] = set()
    overspend = refused = 0
    argv = [sys.executable, "-m", "benchmarks.money.racer", dsn(), str(settings.REDIS_URL)]
    with ExitStack() as stack:
        racers = [
            stack.enter_context(
                subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            )
            for _ in range(GATEWAYS)
        ]
        for racer in racers:
            assert racer.stdout is not None and racer.stdout.readline() == "ready\n"
        for number in range(rounds):
            if number == rounds // 2:
                threading.Timer(KILL_AFTER_S, redis.kill).start()
            count, spent_nano = _round(racers, SCOPES[number % len(SCOPES)])
            served.add(count)
            overspend += max(0, spent_nano - MONEY_FOR * HELD_NANO)
            refused += max(0, MONEY_FOR - count)
        for racer in racers:
            assert racer.stdin is not None
            racer.stdin.close()
    redis.start()
    return {
        "rounds": rounds,
        "asked_by": f"{GATEWAYS} processes with a gateway's ledger and limiter, {PARALLEL} each",
        "served_per_round": sorted(served),
        "overspend_nano_usd": overspend,
        "wrongly_refused": refused,
        "open_holds": rows("SELECT count(*) FROM open_holds")[0][0],
    }


def _round(racers: list[subprocess.Popen[str]], short: str) -> tuple[int, int]:
    """Requests served, and nano-USD on the level that runs short."""
    payer = {scope: uuid.uuid4() for scope in SCOPES}
    for scope, budget in payer.items():
        # A part of a further request is left over, which must buy none.
        limit = MONEY_FOR * HELD_NANO + HELD_NANO // 2 if scope == short else AMPLE_NANO
        add_budget(budget, limit, scope=scope, organization=payer["organization"])
    ids = (payer["organization"].hex, payer["project"].hex, payer["key"].hex)
    line = msgspec.json.encode(Race(payer=ids, parallel=PARALLEL)).decode()
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write(f"{line}\n")
        racer.stdin.flush()
    served = 0
    for racer in racers:
        assert racer.stdout is not None
        served += int(racer.stdout.readline())
    spent: int = rows("SELECT posted + held FROM budgets WHERE id = %s", payer[short])[0][0]
    return served, spent
