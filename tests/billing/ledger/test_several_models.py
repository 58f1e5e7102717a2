"""Holds of requests that one of several models may serve: the one that served sets the price."""

from __future__ import annotations

import asyncio
import io
import uuid

import msgspec
import pytest
from django.core.management import call_command

from controlplane.bridge.money.ledger import PostgresLedger
from controlplane.gateway.ports import Hold
from controlplane.kernel.price import Price, TokenCounts, charge_nano
from inference.contract.frames import Report, Timing, Usage
from tests.support.money import (
    ORG_A,
    add_budget,
    budget_row,
    dsn,
    lines,
    make_hold,
    rows,
    settlement_of,
)
from tests.support.orm import orm
from tests.support.waiting import until

SMALL = Price(version=7, input_pico=500, cached_pico=50, output_pico=1_000)
OTHERS = {"sluice-'small\"": SMALL, "sluice-tiny": msgspec.structs.replace(SMALL, version=8)}
NAME = next(iter(OTHERS))
USAGE = Usage(prompt_tokens=20, cached_tokens=0, completion_tokens=10)
COUNTS = TokenCounts(uncached=20, cached=0, output=10)
# 20 x 0.5 + 10 x 1 nano-USD; by the hold's own model it would be 60.
SMALL_NANO = charge_nano(SMALL, COUNTS)


def report(hold: Hold, model: str = NAME) -> Report:
    """A node's count for a request whose gateway is gone."""
    timing = Timing(queue_us=1, prefill_us=1, decode_us=1, held_us=3)
    return Report(
        request=hold.request, model=model, usage=USAGE, timing=timing, finish="stop", ticket=b""
    )


def held_for_several(*, expires_s: int = 60) -> Hold:
    """Alice's hold of 100 nano-USD for a request that three models may serve."""
    hold = make_hold(100, ORG_A, expires_s=expires_s)
    return msgspec.structs.replace(hold, others=OTHERS)


def booked(hold: Hold) -> list[tuple[str, str, str, int, int]]:
    """(kind, model, credit, price version, amount) of a request's lines."""
    query = "SELECT kind, model, credit, price_version, amount FROM transfers WHERE request = %s"
    return rows(query + " ORDER BY slot", uuid.UUID(bytes=hold.request))


@orm
def check_books() -> None:
    """All invariants hold, and so do the seals over every line."""
    rows("SELECT ledger_seal(clock_timestamp(), 100, 8)")
    out = io.StringIO()
    call_command("verify_ledger", "--strict", stdout=out)
    assert "L6 ok" in out.getvalue()


@pytest.fixture(autouse=True)
def budget(database: str) -> None:
    """Room for ten such holds."""
    add_budget(ORG_A, 1_000, scope="organization")


async def test_what_served_is_charged_and_credited(ledger: PostgresLedger) -> None:
    hold = held_for_several()
    await ledger.hold(hold)
    settlement = settlement_of(hold, SMALL_NANO, COUNTS)
    await ledger.settle(msgspec.structs.replace(settlement, model=NAME, price=SMALL))
    assert booked(hold) == [
        ("hold", "sluice-5m", "revenue:sluice-5m", 3, 100),
        ("settle", NAME, f"revenue:{NAME}", 7, SMALL_NANO),
    ]
    assert budget_row(ORG_A) == (SMALL_NANO, 0, 0)
    await check_books()


@pytest.mark.parametrize(
    ("model", "version", "nano"), [(NAME, 7, SMALL_NANO), ("sluice-5m", 3, 60)]
)
async def test_a_dead_gateways_report_is_charged_by_its_model(
    ledger: PostgresLedger, model: str, version: int, nano: int
) -> None:
    hold = held_for_several()
    await ledger.hold(hold)
    await ledger.close()
    survivor = PostgresLedger(dsn())
    survivor.start()
    await until(lambda: not survivor.away)
    for _ in range(2):
        assert await survivor.settle_report(report(hold, model))
    await survivor.close()
    assert booked(hold)[1:] == [("settle", model, f"revenue:{model}", version, nano)]
    await check_books()


async def test_a_report_of_a_model_that_was_not_agreed_on_books_nothing(
    ledger: PostgresLedger,
) -> None:
    hold = held_for_several()
    await ledger.hold(hold)
    assert await ledger.settle_report(report(hold, "stranger"))
    assert lines(hold.request) == [(0, "hold", 100)]


async def test_a_report_after_the_hold_expired_is_charged_by_its_model(
    ledger: PostgresLedger,
) -> None:
    hold = held_for_several(expires_s=0)
    await ledger.hold(hold)
    rows("SELECT ledger_expire(10)")
    assert await ledger.settle_report(report(hold))
    assert booked(hold)[2:] == [("late", NAME, f"revenue:{NAME}", 7, SMALL_NANO)]
    assert budget_row(ORG_A) == (SMALL_NANO, 0, 0)
    await check_books()


async def test_a_report_beyond_the_hold_is_cut_by_its_own_price(ledger: PostgresLedger) -> None:
    hold = held_for_several()
    await ledger.hold(hold)
    much = msgspec.structs.replace(USAGE, completion_tokens=1_000)
    assert await ledger.settle_report(msgspec.structs.replace(report(hold), usage=much))
    assert lines(hold.request) == [(0, "hold", 100), (1, "settle", 100)]
    assert rows("SELECT uncached, output FROM transfers WHERE slot = 1") == [(20, 90)]


async def test_prices_come_with_their_own_holds_in_a_batch_and_a_replay(
    ledger: PostgresLedger,
) -> None:
    holds = [held_for_several() if place % 2 else make_hold(5, ORG_A) for place in range(6)]
    await asyncio.gather(*(ledger.hold(hold) for hold in holds))
    # Lost with a crash of the server, and replayed at the next connection.
    rows("ALTER TABLE transfers DISABLE TRIGGER USER; DELETE FROM transfers")
    rows("ALTER TABLE transfers ENABLE TRIGGER USER; DELETE FROM open_holds")
    rows("UPDATE budgets SET held = 0")
    rows("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'sluice_gateway'")
    await until(lambda: rows("SELECT count(*) FROM open_holds") == [(6,)])
    found = dict(rows("SELECT request, others FROM transfers"))
    told = {
        uuid.UUID(bytes=hold.request): msgspec.to_builtins(hold.others) or None for hold in holds
    }
    assert found == told
    assert dict(rows("SELECT request, others FROM open_holds")) == told
