"""One suite for the Claims port: on PostgreSQL, and in memory as tests of the gateway use it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from controlplane.bridge.money.claims import PostgresClaims
from controlplane.gateway.ports import (
    ClaimRefused,
    Claims,
    IdempotencyTicket,
    LedgerAway,
    ReplayedAnswer,
)
from tests.support.money import dsn, ticket
from tests.support.ports import MemoryClaims
from tests.support.waiting import until

ANSWER = ReplayedAnswer(b"r" * 16, True, b"data: x\n\n")
OPEN_S = 720


@pytest.fixture
async def claims(kind: str) -> AsyncIterator[Claims]:
    if kind == "memory":
        yield MemoryClaims()
        return
    made = PostgresClaims(dsn(), open_s=OPEN_S)
    made.start()
    await until(lambda: made._connection is not None)
    yield made
    await made.close()


async def verdict(claims: Claims, asked: IdempotencyTicket) -> str:
    try:
        answer = await claims.claim(asked)
    except ClaimRefused as refused:
        return refused.verdict
    return "mine" if answer is None else "kept"


async def test_the_first_has_it_and_others_are_told_whose_it_is(claims: Claims) -> None:
    first = ticket()
    assert await claims.claim(first) is None
    with pytest.raises(ClaimRefused) as refused:
        await claims.claim(ticket())
    assert (refused.value.verdict, refused.value.first) == ("running", first.request)
    assert await claims.hold(first)
    assert await verdict(claims, ticket(id=b"j" * 32)) == "mine"


async def test_an_answer_is_kept_for_the_same_request_alone(claims: Claims) -> None:
    first = ticket()
    await claims.claim(first)
    await claims.hold(first)
    await claims.keep(first, ANSWER)
    assert await claims.claim(ticket()) == ANSWER
    assert await verdict(claims, ticket(body_digest=b"e" * 32)) == "mismatch"
    assert await verdict(claims, ticket(secret=b"sk_bob")) == "mismatch"


async def test_what_was_charged_without_an_answer_is_never_done_again(claims: Claims) -> None:
    first = ticket()
    await claims.claim(first)
    await claims.hold(first)
    await claims.keep(first, None)
    await claims.free(first)
    assert await verdict(claims, ticket()) == "charged"


async def test_only_its_owner_frees_a_claim(claims: Claims) -> None:
    first, second = ticket(), ticket()
    await claims.claim(first)
    await claims.free(second)
    assert await verdict(claims, second) == "running"
    await claims.free(first)
    assert await verdict(claims, second) == "mine"
    assert not await claims.hold(first)
    assert await claims.hold(second)


@pytest.mark.parametrize("away", [MemoryClaims(away=True), None], ids=["memory", "postgresql"])
async def test_where_nobody_can_tell_it_is_said_and_endings_never_raise(
    away: MemoryClaims | None,
) -> None:
    claims: Claims = away or PostgresClaims("host=/nowhere", open_s=OPEN_S)
    with pytest.raises(LedgerAway):
        await claims.claim(ticket())
    with pytest.raises(LedgerAway):
        await claims.hold(ticket())
    await claims.keep(ticket(), ANSWER)
    await claims.free(ticket())
