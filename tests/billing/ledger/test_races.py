"""Several gateway processes, many requests at once, money for exactly seven of them."""

from __future__ import annotations

import subprocess
import sys
import uuid
from contextlib import ExitStack

import pytest

from tests.support.money import ALICE_KEY, ORG_A, PROJECT_A, add_budget, dsn, rows

PROCESSES = 4
PARALLEL = 100
RACE_S_MAX = 60
SCOPES = {ALICE_KEY: "key", PROJECT_A: "project", ORG_A: "organization"}


def _race(amount: int, budgets: list[uuid.UUID]) -> int:
    command = [sys.executable, "-m", "tests.support.hold_racer", dsn(), str(amount), str(PARALLEL)]
    with ExitStack() as stack:
        racers = [
            stack.enter_context(
                subprocess.Popen(
                    [*command, *map(str, budgets)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    text=True,
                )
            )
            for _ in range(PROCESSES)
        ]
        ready = [racer.stdout.readline() for racer in racers if racer.stdout is not None]
        assert ready == ["ready\n"] * PROCESSES
        for racer in racers:
            assert racer.stdin is not None
            racer.stdin.write("go\n")
            racer.stdin.flush()
        return sum(int(racer.communicate(timeout=RACE_S_MAX)[0]) for racer in racers)


@pytest.mark.parametrize("short", list(SCOPES), ids=list(SCOPES.values()))
def test_money_for_seven_admits_exactly_seven(database: str, short: uuid.UUID) -> None:
    for budget, scope in SCOPES.items():
        add_budget(budget, 79 if budget == short else 1_000_000, scope=scope)
    assert _race(11, list(SCOPES)) == 7
    spent = rows("SELECT id, posted + held, over FROM budgets")
    assert {(total, over) for _, total, over in spent} == {(77, 0)}
    assert rows("SELECT count(*) FROM transfers WHERE slot = 0") == [(7,)]


def test_ample_money_admits_everyone_without_a_deadlock(database: str) -> None:
    for budget, scope in SCOPES.items():
        add_budget(budget, 1_000_000, scope=scope)
    before = rows("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
    assert _race(11, list(SCOPES)) == PROCESSES * PARALLEL
    after = rows("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
    assert after == before
