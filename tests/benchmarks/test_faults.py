"""What the campaign of faults counts as a broken promise."""

from __future__ import annotations

from dataclasses import asdict
from importlib import import_module

import pytest

from tests.product.traffic import WORD, Answer

COUNTED = ("lost", "doubled", "hung", "leaked", "late", "unbilled")
TOKENS_PER_S = 100.0


def answer(
    tokens: int, *, done: bool = False, error: str = "", broken: str = "", streamed: bool = True
) -> Answer:
    """One that took 95 ms, in which ten tokens can be made."""
    events: list[dict[str, object]] = [{"choices": [{"text": WORD}]} for _ in range(tokens)]
    if error:
        events.append({"error": {"code": error}})
    return Answer(
        streamed, began_s=1.0, ended_s=1.095, status=200, events=events, done=done, broken=broken
    )


def test_whatever_is_counted_breaks_the_promise() -> None:
    count = import_module("benchmarks.faults.ground").Count
    assert tuple(asdict(count())) == ("tried", *COUNTED)
    assert count(tried=20).clean
    assert not any(count(tried=20, **{name: 1}).clean for name in COUNTED)


@pytest.mark.parametrize(
    ("seen", "billed", "wrong"),
    [
        (answer(0, broken="ReadError"), None, False),
        (answer(0, broken="ReadError", streamed=False), 11, False),
        (answer(0, broken="ReadError", streamed=False), 12, True),
        (answer(5, broken="ReadError"), None, True),
        (answer(5, broken="ReadError"), 4, True),
        (answer(5, broken="ReadError"), 5, False),
        (answer(5, error="node_lost"), 5, False),
        (answer(5, error="node_lost"), 6, True),
        (answer(5, error="node_lost"), None, True),
        (answer(5, done=True), 5, False),
        (answer(5, done=True), 6, True),
        (answer(5, done=True), None, True),
    ],
)
def test_what_was_delivered_is_billed_and_at_most_a_step_more(
    seen: Answer, billed: int | None, wrong: bool
) -> None:
    books = import_module("tests.product.books")
    bill = None if billed is None else books.Bill(1, billed, billed, frozenset({"node"}))
    most = books.made_max(seen, TOKENS_PER_S)
    assert bool(books.wrong_bill(seen, bill, most=most)) is wrong
