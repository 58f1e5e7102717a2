"""C7: thirty days, minute by minute: alerts begin and end where the table of windows says."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate
from typing import NamedTuple

import pytest

from controlplane.kernel.objectives.burn import (
    RULES,
    Count,
    exhausted_in_s,
    firing,
    least_target_ppm,
    remaining,
    unreachable,
)

TARGET_PPM = 999_000
A_MINUTE = 10_000
# A burn rate of 1 at this target and this traffic.
ALLOWED_BAD = 10
DAYS = 30
HOUR, DAY = 60, 1_440


class Incident(NamedTuple):
    """So many minutes from `start` on, the budget burns at this rate."""

    start: int
    minutes: int
    burn: float


def replay(incidents: Iterable[Incident], days: int = DAYS) -> dict[str, list[tuple[int, int]]]:
    """Of each rule, the minutes at whose end it began to fire and was over."""
    bad = [0] * (days * DAY)
    for incident in incidents:
        for minute in range(incident.start, incident.start + incident.minutes):
            bad[minute] = round(incident.burn * ALLOWED_BAD)
    sums = [0, *accumulate(bad)]
    found: dict[str, list[tuple[int, int]]] = {rule.name: [] for rule in RULES}
    begun: dict[str, int] = {}
    for end in range(1, len(bad) + 1):

        def window(minutes: int, end: int = end) -> Count:
            start = max(0, end - minutes)
            total = (end - start) * A_MINUTE
            return Count(total - (sums[end] - sums[start]), total)

        now = {one.rule.name for one in firing(RULES, window, TARGET_PPM, days)}
        for name in now - begun.keys():
            begun[name] = end
        for name in begun.keys() - now:
            found[name].append((begun.pop(name), end))
    assert not begun
    return found


OUTAGE = Incident(5 * DAY, 10, 1_000)
QUICK = Incident(12 * DAY, 3 * HOUR, 14.5)
SLOW = Incident(20 * DAY, 5 * DAY, 2)


def test_a_synthetic_month_fires_and_clears_at_the_minutes_of_the_table() -> None:
    found = replay([OUTAGE, QUICK, SLOW])
    outage, quick, slow = OUTAGE.start, QUICK.start, SLOW.start
    outage_end, quick_end, slow_end = (one.start + one.minutes for one in (OUTAGE, QUICK, SLOW))
    assert found == {
        # 1 h and 5 min above 14.4: 1 min of 1,000 is 16.7 in an hour, 60 min of 14.5 are 14.5.
        "page_quick": [(outage + 1, outage_end + 5), (quick + 60, quick_end + 1)],
        # 6 h and 30 min above 6: after 3 min of 1,000, after 149 min of 14.5.
        "page_slow": [(outage + 3, outage_end + 30), (quick + 149, quick_end + 18)],
        # 24 h and 2 h above 3: after 5 min of 1,000; 180 min of 14.5 are 1.8 of a day.
        "ticket_quick": [(outage + 5, outage_end + 120)],
        # 3 d and 6 h above 1: after 5 min of 1,000, after 2,161 of 2, over at half of 6 h.
        "ticket_slow": [(outage + 5, outage_end + 360), (slow + 2_161, slow_end + 180)],
    }


def test_a_burn_rate_at_its_factor_does_not_fire_and_just_above_does() -> None:
    # Of 28 days the factor is 13.44: 13.4 never exceeds it, 13.5 does with its 60th minute.
    assert replay([Incident(DAY, 2 * HOUR, 13.4)], days=28)["page_quick"] == []
    assert replay([Incident(DAY, 2 * HOUR, 13.5)], days=28)["page_quick"] == [
        (DAY + 60, DAY + 2 * HOUR + 1)
    ]


@pytest.mark.parametrize(
    ("rule", "factor_30", "factor_28", "hours"),
    [(0, 14.4, 13.44, 50), (1, 6.0, 5.6, 120), (2, 3.0, 2.8, 240), (3, 1.0, 0.9333, 720)],
)
def test_factors_and_the_time_in_which_they_spend_a_whole_budget(
    rule: int, factor_30: float, factor_28: float, hours: int
) -> None:
    found = RULES[rule]
    assert found.factor(30) == pytest.approx(factor_30)
    assert found.factor(28) == pytest.approx(factor_28, abs=1e-4)
    assert found.short_min * 12 == found.long_min
    assert exhausted_in_s(1.0, factor_30, 30) == pytest.approx(hours * 3_600)


def test_a_rule_that_nothing_could_set_off_is_known() -> None:
    never = [
        [rule.name for rule in RULES if unreachable(rule, target, 30)]
        for target in (900_000, 930_000, 950_000, 400_000)
    ]
    assert never == [
        ["page_quick"], ["page_quick"], [], ["page_quick", "page_slow", "ticket_quick"],
    ]  # fmt: skip
    for rule in RULES[:3]:
        least = least_target_ppm(rule, 30)
        assert not unreachable(rule, least, 30) and unreachable(rule, least - 1, 30)


def test_few_requests_wake_nobody() -> None:
    """One failure in an hour of 60 requests burns at 16.7; it is a ticket, not a page."""
    one = firing(RULES[:1], lambda minutes: Count(minutes - 1, minutes), TARGET_PPM, 30)
    assert [(each.rule.name, each.severity) for each in one] == [("page_quick", "ticket")]
    five = firing(RULES[:1], lambda minutes: Count(minutes * 5 - 5, minutes * 5), TARGET_PPM, 30)
    assert [each.severity for each in five] == ["page"]


def test_no_data_is_no_burn_rate() -> None:
    assert firing(RULES, lambda _: Count(), TARGET_PPM, 30) == []
    assert remaining(Count(), TARGET_PPM) is None
    assert remaining(Count(997, 1_000), TARGET_PPM) == pytest.approx(-2.0)
