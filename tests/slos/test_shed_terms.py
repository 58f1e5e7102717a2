"""Holds replayed minute by minute: how long a priority is kept out, and how often at most."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from controlplane.kernel.objectives.burn import PAGE, RULES, Count, firing
from controlplane.slos.shedding import LEASE, LEAST, LEAST_MAX, RELAPSE, WELL, ShedTerms, next_terms

START = datetime(2026, 3, 1, tzinfo=UTC)
A_MINUTE = timedelta(minutes=1)
PAGES = [rule for rule in RULES if rule.severity == PAGE]
TARGET_PPM, DAYS = 990_000, 30
BEFORE, DAY = 60, 24 * 60
# What counts in a minute: all is well, too much is let in, and then only what is left of it.
ALL_WELL, TOO_MUCH = Count(100, 100), Count(50, 100)


def replay(load: Callable[[int, bool], Count], minutes: int = DAY) -> list[ShedTerms]:
    """Every shed of a service whose minutes count `load(minute, kept_out)`, newest state last."""
    counts = [ALL_WELL] * BEFORE
    terms: ShedTerms | None = None
    found: list[ShedTerms] = []
    for minute in range(minutes):
        counts.append(load(minute, terms is not None and terms.released_at is None))

        def window(minutes: int) -> Count:
            recent = counts[-minutes:]
            return Count(sum(one.good for one in recent), sum(one.total for one in recent))

        fired = firing(PAGES, window, TARGET_PPM, DAYS)
        paging = any(one.severity == PAGE for one in fired)
        now = START + minute * A_MINUTE
        terms = next_terms(terms, paging=paging, burning=bool(fired), now=now)
        if terms is not None:
            found = [one for one in found if one.since != terms.since] + [terms]
    return found


def lasted(terms: ShedTerms) -> timedelta:
    """From its beginning to its end."""
    assert terms.released_at is not None
    return terms.released_at - terms.since


def test_where_nothing_else_comes_each_relapse_is_kept_out_twice_as_long() -> None:
    """All traffic is of the priority, and is too much for days: nothing counts while it is out."""
    sheds = replay(lambda _, out: Count() if out else TOO_MUCH, minutes=2 * DAY)
    over = [one for one in sheds if one.released_at is not None]
    leasts = [one.least for one in sheds]
    assert leasts[:7] == [LEAST * 2**power for power in range(5)] + [LEAST_MAX] * 2
    assert set(leasts[7:]) == {LEAST_MAX}
    # Two windows of 30 min at most have to empty before what is left counts as well.
    assert all(one.least <= lasted(one) <= max(one.least, 30 * A_MINUTE + WELL) for one in over)
    # Without sheds it is let in as soon as five minutes have passed, a hundred times a day.
    assert len(sheds) <= 5 + 2 * timedelta(days=1) / LEAST_MAX


def test_an_overload_that_is_over_is_forgotten() -> None:
    """Two hours of too much; the same again, four hours after the last shed."""

    def load(minute: int, out: bool) -> Count:
        busy = minute < 120 or 700 <= minute < 760
        return Count(10, 10) if out else TOO_MUCH if busy else ALL_WELL

    sheds = replay(load)
    assert all(one.released_at is not None for one in sheds)
    after = next(place for place, one in enumerate(sheds) if one.since >= START + 700 * A_MINUTE)
    before, again = sheds[after - 1], sheds[after]
    assert before.released_at is not None and again.since - before.released_at > RELAPSE
    assert (before.least > LEAST, again.least) == (True, LEAST)


def test_nothing_is_let_in_while_the_rest_is_ill() -> None:
    """What is left is one request a minute, too few for a page, and fails for two hours."""
    sheds = replay(lambda minute, out: Count(0, 1) if out and minute < 120 else ALL_WELL
                   if minute >= 120 else TOO_MUCH)  # fmt: skip
    assert len(sheds) == 1 and sheds[0].released_at is not None
    end = sheds[0].released_at - START
    assert 120 * A_MINUTE + WELL <= end <= (120 + 60) * A_MINUTE + WELL


def test_an_illness_in_between_begins_the_wait_anew() -> None:
    terms = next_terms(None, paging=True, burning=True, now=START)
    ends = []
    for minute in range(1, 60):
        assert terms is not None
        now = START + minute * A_MINUTE
        terms = next_terms(terms, paging=False, burning=minute in (5, 14), now=now)
        assert terms is not None
        if terms.released_at is not None:
            ends.append(minute)
    assert ends[0] == 15 + WELL // A_MINUTE


def test_a_lease_is_renewed_in_time_and_ends_what_nobody_renews() -> None:
    terms = next_terms(None, paging=True, burning=True, now=START)
    leases = set()
    for half_minute in range(1, 41):
        assert terms is not None
        now = START + half_minute * A_MINUTE / 2
        terms = next_terms(terms, paging=True, burning=True, now=now)
        assert terms is not None and terms.released_at is None
        assert LEASE / 2 < terms.until - now <= LEASE
        leases.add(terms.until)
    # Gateways read the configuration again for each: one in two and a half minutes.
    assert len(leases) == 9
    assert terms is not None
    ended = next_terms(terms, paging=True, burning=True, now=terms.until)
    assert ended is not None and ended.released_at == terms.until
    again = next_terms(ended, paging=True, burning=True, now=terms.until + A_MINUTE)
    assert again is not None and again.least == 2 * LEAST
