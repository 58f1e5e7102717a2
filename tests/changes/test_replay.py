"""Recorded requests through two sets of limits: which are refused, by which, and when."""

from __future__ import annotations

import random
import uuid
from typing import Any

import pytest

from controlplane.changes.content import LimitPart
from controlplane.changes.replay import (
    BUDGET_ROWS,
    COUNTERS,
    LEDGER_LINES,
    Allowed,
    Arrival,
    LimitGate,
    Reached,
    compare,
)
from controlplane.kernel.leak import LeakLevel
from controlplane.quotas.services import LimitSet

KEY, PROJECT, ORGANIZATION = (uuid.UUID(int=number) for number in (1, 2, 3))
ALL = LimitPart()
NONE = LimitGate({}, {})


def at(second: float, **more: Any) -> Arrival:
    fields: dict[str, Any] = {
        "took_s": 1.0,
        "tokens": 10,
        "nano": 100,
        "subjects": (KEY, PROJECT, ORGANIZATION),
        "key": KEY,
        "model": "small",
        "user": "",
    }
    return Arrival(at_s=second, **{**fields, **more})


def gate(limits: LimitSet, part: LimitPart = ALL, subject: uuid.UUID = PROJECT) -> LimitGate:
    return LimitGate({subject: {part: limits}}, {})


def admitted(one: LimitGate, *arrivals: Arrival) -> list[bool]:
    return [one.admit(arrival) is None for arrival in arrivals]


def test_a_bucket_empties_at_once_and_refills_evenly() -> None:
    limited = gate(LimitSet(requests_per_min=3))
    assert admitted(limited, *(at(0) for _ in range(4))) == [True, True, True, False]
    assert admitted(limited, at(19.9), at(20.1), at(20.2)) == [False, True, False]


def test_tokens_per_minute_refuse_what_does_not_fit() -> None:
    limited = gate(LimitSet(tokens_per_min=60))
    assert admitted(limited, at(0, tokens=61), at(0, tokens=60), at(5, tokens=6)) == [
        False,
        True,
        False,
    ]
    assert admitted(limited, at(6, tokens=6)) == [True]


def test_what_is_written_is_told_of_what_is_admitted() -> None:
    limited = LimitGate(
        {PROJECT: {ALL: LimitSet(requests_per_min=1)}, KEY: {ALL: LimitSet(tokens_per_min=99)}},
        {ORGANIZATION: {ALL: Allowed(1_000)}},
    )
    assert admitted(limited, at(0), at(0)) == [True, False]
    assert limited.writes == {COUNTERS: 3, BUDGET_ROWS: 2, LEDGER_LINES: 2}


def test_what_is_in_progress_ends_when_its_record_does() -> None:
    limited = gate(LimitSet(concurrency=1))
    assert admitted(limited, at(0, took_s=5), at(4.9), at(5.0)) == [True, False, True]


def test_all_levels_are_taken_or_none() -> None:
    limited = LimitGate(
        {KEY: {ALL: LimitSet(requests_per_min=1)}, PROJECT: {ALL: LimitSet(requests_per_min=2)}},
        {},
    )
    other = at(0, subjects=(uuid.UUID(int=9), PROJECT, ORGANIZATION))
    found = [limited.admit(one) for one in (at(0), at(0), other, other)]
    assert found == [
        None,
        Reached(KEY, ALL, "requests"),
        None,
        Reached(PROJECT, ALL, "requests"),
    ]


def test_models_and_end_users_count_apart() -> None:
    limited = gate(LimitSet(requests_per_min=1), LimitPart(model="large"))
    assert admitted(limited, at(0), at(0), at(0, model="large"), at(0, model="large")) == [
        True,
        True,
        True,
        False,
    ]
    each = gate(LimitSet(requests_per_min=1), LimitPart(per_user=True))
    assert admitted(each, at(0, user="a"), at(0, user="b"), at(0, user="a")) == [True, True, False]


def test_a_budget_is_spent_and_begins_again_with_its_period() -> None:
    day = 86_400.0
    paid = LimitGate({}, {PROJECT: {ALL: Allowed(250, "day", spent_nano=100)}})
    found = admitted(paid, at(0), at(1), at(day), at(day + 1), at(day + 2))
    assert found == [True, False, True, True, False]
    ever = LimitGate({}, {PROJECT: {ALL: Allowed(200)}})
    assert admitted(ever, at(0), at(1), at(2, nano=0)) == [True, True, False]


def test_both_sets_are_told_apart() -> None:
    before, after = gate(LimitSet(requests_per_min=2)), gate(LimitSet(requests_per_min=1))
    arrivals = [at(0), at(1, model="large"), at(2)]
    found = compare(arrivals, before, after)
    total = found.total
    assert (total.requests, total.before, total.after, total.newly, total.freed) == (3, 1, 2, 1, 0)
    assert (found.first_s, found.last_s, total.tokens, total.nano) == (1, 1, 10, 100)
    assert (found.models["large"].newly, found.models["small"].newly) == (1, 0)
    assert found.reached == {Reached(PROJECT, ALL, "requests"): 2}
    freed = compare(arrivals, gate(LimitSet(requests_per_min=1)), NONE)
    assert (freed.total.freed, freed.total.newly, freed.first_s) == (2, 0, None)


@pytest.mark.parametrize("seed", range(20))
def test_no_minute_lets_more_through_than_the_limit_and_its_refill(seed: int) -> None:
    lots = random.Random(seed)
    limit = lots.randint(1, 30)
    limited = gate(LimitSet(requests_per_min=limit))
    moments = sorted(lots.uniform(0, 300) for _ in range(400))
    let = [moment for moment in moments if limited.admit(at(moment)) is None]
    for start in let:
        within = sum(start <= moment < start + 60 for moment in let)
        assert within <= 2 * limit


def test_a_level_never_leaks_below_nothing() -> None:
    assert LeakLevel(5.0, 10.0).leaked(1.0, 12.0) == 3.0
    assert LeakLevel(5.0, 10.0).leaked(1.0, 100.0) == 0.0
