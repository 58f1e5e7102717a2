"""The Claims port on a real PostgreSQL: one claims; the ledger decides about a dead one."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
import psycopg
import pytest

from controlplane.billing.ledger.services import claims_forget
from controlplane.bridge.money.claims import KEPT_S, SETTLED_S, UNHELD_S, PostgresClaims
from controlplane.bridge.money.ledger import PostgresLedger
from controlplane.gateway.ports import (
    ClaimRefused,
    Hold,
    IdempotencyTicket,
    LedgerAway,
    ReplayedAnswer,
)
from tests.support.money import ORG_A, add_budget, dsn, make_hold, rows, settlement_of, ticket
from tests.support.orm import orm
from tests.support.waiting import until

# No hold lasts longer, as the gateway of these tests is set up.
OPEN_S = 720


@pytest.fixture
async def claims(database: str) -> AsyncIterator[PostgresClaims]:
    made = PostgresClaims(dsn(), open_s=OPEN_S)
    made.start()
    await until(lambda: made._connection is not None)
    yield made
    await made.close()


@pytest.fixture
async def ledger(database: str) -> AsyncIterator[PostgresLedger]:
    made = PostgresLedger(dsn())
    made.start()
    await until(lambda: not made.away)
    add_budget(ORG_A, 10_000, scope="organization")
    yield made
    await made.close()


async def verdict(claims: PostgresClaims, again: IdempotencyTicket) -> str:
    try:
        return "mine" if await claims.claim(again) is None else "kept"
    except ClaimRefused as error:
        return error.verdict


def held_for(first: IdempotencyTicket) -> Hold:
    return msgspec.structs.replace(make_hold(100, ORG_A), request=first.request)


def age(seconds: int) -> None:
    rows("UPDATE inference_claims SET claimed_at = claimed_at - make_interval(secs => %s)", seconds)


async def test_the_answer_is_kept_for_whoever_has_the_key(claims: PostgresClaims) -> None:
    first, answer = ticket(), ReplayedAnswer(b"r" * 16, True, b"data: x\n\n")
    assert await claims.claim(first) is None
    assert await verdict(claims, ticket()) == "running"
    assert await claims.hold(first)
    await claims.keep(first, answer)
    assert await claims.claim(ticket()) == answer
    assert await verdict(claims, ticket(body_digest=b"e" * 32)) == "mismatch"
    stored = rows("SELECT payload, answer FROM inference_claims")
    assert b"data: x" not in stored[0][1] and bytes(stored[0][0]) != first.body_digest
    # The same request in another's name: the payload's digest is keyed by the secret, too.
    assert await verdict(claims, ticket(secret=b"sk_bob")) == "mismatch"


async def test_what_was_freed_begins_anew_and_what_is_done_is_never_freed(
    claims: PostgresClaims,
) -> None:
    first, second = ticket(), ticket()
    await claims.claim(first)
    await claims.free(second)
    assert await verdict(claims, second) == "running"
    await claims.free(first)
    assert await verdict(claims, second) == "mine"
    await claims.hold(second)
    await claims.keep(second, None)
    await claims.free(second)
    assert await verdict(claims, ticket()) == "charged"


async def test_a_gateway_that_died_before_its_hold_is_followed_after_a_while(
    claims: PostgresClaims,
) -> None:
    first, second = ticket(), ticket()
    await claims.claim(first)
    age(UNHELD_S - 5)
    assert await verdict(claims, second) == "running"
    age(10)
    assert await verdict(claims, second) == "mine"
    # It only seemed dead: its hold is given back instead of used.
    assert not await claims.hold(first)
    assert await claims.hold(second)


async def test_while_its_hold_is_open_nobody_follows(
    claims: PostgresClaims, ledger: PostgresLedger
) -> None:
    first = ticket()
    await claims.claim(first)
    await ledger.hold(held_for(first))
    age(OPEN_S + 60)
    assert await verdict(claims, ticket()) == "running"


async def test_a_gateway_that_died_after_the_charge_is_never_followed(
    claims: PostgresClaims, ledger: PostgresLedger
) -> None:
    first = ticket()
    await claims.claim(first)
    hold = held_for(first)
    await ledger.hold(hold)
    await claims.hold(first)
    await ledger.settle(settlement_of(hold, 30))
    assert await verdict(claims, ticket()) == "running"
    rows("ALTER TABLE transfers DISABLE TRIGGER ALL")
    rows("UPDATE transfers SET booked_at = booked_at - make_interval(secs => %s)", SETTLED_S + 1)
    age(OPEN_S + 60)
    assert await verdict(claims, ticket()) == "charged"


async def test_a_gateway_that_died_after_giving_back_is_followed_at_once(
    claims: PostgresClaims, ledger: PostgresLedger
) -> None:
    first = ticket()
    await claims.claim(first)
    hold = held_for(first)
    await ledger.hold(hold)
    await claims.hold(first)
    await ledger.settle(settlement_of(hold, 0))
    assert await verdict(claims, ticket()) == "mine"


async def test_after_a_day_it_is_forgotten(claims: PostgresClaims) -> None:
    first = ticket()
    await claims.claim(first)
    await claims.hold(first)
    await claims.keep(first, None)
    assert await orm(claims_forget)() == 0
    age(KEPT_S + 1)
    assert await verdict(claims, ticket(body_digest=b"e" * 32)) == "mine"
    age(KEPT_S + 1)
    assert await orm(claims_forget)() == 1


async def test_the_gateways_role_reads_no_row(claims: PostgresClaims) -> None:
    await claims.claim(ticket())
    with (
        psycopg.connect(dsn()) as gateway,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        gateway.execute("SELECT * FROM inference_claims")


async def test_without_postgresql_nobody_can_tell() -> None:
    with pytest.raises(LedgerAway):
        await PostgresClaims("host=/nowhere", open_s=OPEN_S).claim(ticket())
