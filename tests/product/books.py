"""The ledger of the product under test beside what its clients saw."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass

from tests.product.traffic import Answer
from tests.support.money import rows
from tests.support.product import verify_ledger

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


def check_bills(answers: Iterable[Answer]) -> None:
    """Each complete answer is charged once, for its tokens; no other for fewer than it showed."""
    booked = bills()
    for answer in answers:
        bill = booked.get(answer.request)
        if answer.whole:
            assert bill is not None, f"{answer.request} was complete and is not on the ledger"
            assert (bill.charges, bill.output) == (1, answer.tokens), (answer, bill)
        elif bill is not None:
            assert bill.charges == 1, (answer, bill)
            assert bill.output >= answer.tokens, (answer, bill)


async def check_books(answers: Iterable[Answer]) -> None:
    """The same, and the ledger's own invariants; nothing may be left open."""
    check_bills(answers)
    assert open_holds() == 0
    await verify_ledger()
