"""The ledger of the product under test beside what its clients saw."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Set
from dataclasses import dataclass
from math import ceil

from tests.product.traffic import Answer
from tests.support.money import rows
from tests.support.product import EXPIRED_S_MAX, Product, verify_ledger
from tests.support.waiting import until

# An echo node with a pace makes one token of each request in a step.
STEP_TOKENS = 1
# A refusal has its status, and leaves no hold.
NOT_REFUSED = (0, 200)
CHARGES = "('settle', 'overage', 'late')"


@dataclass(frozen=True)
class Bill:
    """What the ledger says of one request."""

    charges: int
    output: int
    nano: int
    sources: frozenset[str]


def bills() -> dict[str, Bill]:
    """Every request with a charge, by its id in hex."""
    found = rows(
        "SELECT request, count(*), sum(output)::int, sum(amount)::bigint, array_agg(source)"
        f" FROM transfers WHERE kind IN {CHARGES} GROUP BY request"
    )
    return {
        request.hex: Bill(count, output, nano, frozenset(sources))
        for request, count, output, nano, sources in found
    }


def kinds(request: str) -> list[str]:
    """The kinds of a request's lines, in order."""
    found = rows(
        "SELECT kind FROM transfers WHERE request = %s ORDER BY slot", uuid.UUID(hex=request)
    )
    return [kind for (kind,) in found]


def open_holds() -> int:
    """Holds that nobody has resolved."""
    count: int = rows("SELECT count(*) FROM open_holds")[0][0]
    return count


def expired() -> set[str]:
    """Requests whose hold the product's sweeper has ended, by their ids in hex."""
    return {request.hex for (request,) in rows("SELECT request FROM transfers WHERE kind='expire'")}


async def swept(product: Product, answers: Iterable[Answer], before: Set[str] = frozenset()) -> int:
    """Wait until the product itself has resolved every hold; returns how many expired, besides
    those before.

    Only a request that was cut before it showed a token can have reached no node: of no other may
    the hold have been left to expire.
    """
    answers = list(answers)
    if not product.jobs:
        await settled(product, answers)
        await until(no_time_left)
    await until(lambda: open_holds() == 0, EXPIRED_S_MAX)
    ended = expired() - before
    for answer in answers:
        shown = answer.whole or answer.tokens
        assert not (shown and answer.request in ended), (kinds(answer.request), answer)
    cut = sum(
        answer.status in NOT_REFUSED
        and answer.broken != "ConnectError"
        and not (answer.whole or answer.tokens)
        for answer in answers
    )
    assert len(ended) <= cut, f"{len(ended)} holds expired, and {cut} requests were cut"
    print(f"{len(ended)} holds expired, of {cut} requests that were cut before a token")
    return len(ended)


async def settled(product: Product, answers: Iterable[Answer]) -> None:
    """Wait until all that was shown is charged and no gateway has a job: what is still open then,
    nobody but the sweeper resolves.
    """
    shown = {answer.request for answer in answers if answer.whole or answer.tokens}
    await until(lambda: not product.under_way() and shown <= bills().keys())


def no_time_left() -> bool:
    """Let the time of every open hold be over, and sweep; whether none is left."""
    rows("UPDATE open_holds SET expires_at = now()")
    sweep()
    return open_holds() == 0


def sweep() -> None:
    """What the worker does every ten seconds, for products that have none."""
    rows("SELECT ledger_expire(1000)")


def made_max(answer: Answer, tokens_per_s: float) -> int:
    """What an echo node can have made of a request while its client was there, and one step."""
    return ceil((answer.ended_s - answer.began_s) * tokens_per_s) + STEP_TOKENS


def wrong_bill(answer: Answer, bill: Bill | None, *, most: int | None = None) -> str:
    """What is wrong with the bill of an answer; empty if nothing is.

    A whole answer, and a stream that was ended with a typed error, are billed for exactly what was
    delivered. Of one that was cut off the gateway or the node may have had more: at most `most`.
    """
    if not (answer.whole or answer.tokens or bill):
        return ""
    if bill is None:
        return f"showed {answer.tokens} tokens, and there is no bill"
    if bill.output < answer.tokens:
        return f"showed {answer.tokens} tokens, and the bill is {bill}"
    exact = answer.whole or answer.streamed and answer.error and answer.status == 200
    if bill.output > (answer.tokens if exact else most if most is not None else bill.output):
        return f"got {answer.tokens} tokens, at most {most} were made, and the bill is {bill}"
    return ""


def check_bills(answers: Iterable[Answer]) -> None:
    """All that was shown is charged, once; nothing that was ended in order for any more."""
    booked = bills()
    for answer in answers:
        bill = booked.get(answer.request)
        assert bill is None or bill.charges == 1, (answer, bill)
        wrong = wrong_bill(answer, bill)
        assert not wrong, (wrong, answer)


async def all_charged(answers: Iterable[Answer]) -> None:
    """Wait until nothing is open, and whatever was shown has its bill.

    A PostgreSQL that was killed may have lost its newest holds: until gateways have made them anew,
    none is open, and none is charged.
    """
    shown = {answer.request for answer in answers if answer.whole or answer.tokens}
    await until(lambda: open_holds() == 0 and shown <= bills().keys())


async def check_books(answers: Iterable[Answer]) -> None:
    """The same, and the ledger's own invariants; nothing may be left open."""
    check_bills(answers)
    assert open_holds() == 0
    await verify_ledger()
