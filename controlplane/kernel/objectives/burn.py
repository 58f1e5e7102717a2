"""Error budgets and burn rates: when an alert fires, and when it is over. Pure arithmetic.

A burn rate of 1 spends the whole budget in the objective's period. An alert needs a long window, so
that it means something, and a twelfth of it, so that it ends soon after its cause.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

MILLION = 1_000_000
DAY_MIN = 24 * 60
PERIODS_DAYS = (28, 30)
PAGE, TICKET, ABSENT = "page", "ticket", "absent"
SEVERITIES = (PAGE, TICKET, ABSENT)
# Fewer than these tell too little to wake someone: the alert is a ticket then.
BAD_LONG_MIN, BAD_SHORT_MIN, TOTAL_LONG_MIN = 5, 2, 30
_PERCENT = 100


class Rule(NamedTuple):
    """Fires when both windows burn faster than would spend `spent_percent` in the long one."""

    name: str
    severity: str
    spent_percent: int
    long_min: int
    short_min: int

    def factor(self, period_days: int) -> float:
        """The burn rate that both windows must exceed."""
        return self.spent_percent * period_days * DAY_MIN / (_PERCENT * self.long_min)


RULES = (
    Rule("page_quick", PAGE, 2, 60, 5),
    Rule("page_slow", PAGE, 5, 360, 30),
    Rule("ticket_quick", TICKET, 10, 1_440, 120),
    Rule("ticket_slow", TICKET, 10, 4_320, 360),
)
RULE_NAMES = tuple(rule.name for rule in RULES)
WINDOWS_MIN = tuple(sorted({each for rule in RULES for each in (rule.long_min, rule.short_min)}))


class Count(NamedTuple):
    """Requests that counted in some time, and the good ones among them."""

    good: int = 0
    total: int = 0

    @property
    def bad(self) -> int:
        return self.total - self.good


class Firing(NamedTuple):
    """A rule whose windows both burn too fast, and how fast."""

    rule: Rule
    severity: str
    burn_long: float
    burn_short: float


def burn_rate(count: Count, target_ppm: int) -> float | None:
    """How many times faster than allowed; None without any request, which is not 0."""
    if not count.total:
        return None
    return count.bad * MILLION / (count.total * (MILLION - target_ppm))


def remaining(count: Count, target_ppm: int) -> float | None:
    """The share of the period's budget that is left; below 0 where more was spent."""
    spent = burn_rate(count, target_ppm)
    return None if spent is None else 1.0 - spent


def exhausted_in_s(left: float | None, burn: float | None, period_days: int) -> float | None:
    """Seconds until the budget is spent at this burn rate; None where it never is."""
    if left is None or not burn:
        return None
    return max(0.0, left) * period_days * DAY_MIN * 60 / burn


def unreachable(rule: Rule, target_ppm: int, period_days: int) -> bool:
    """Whether even a window of nothing but failures would not exceed the rule's factor."""
    return not _exceeds(Count(0, 1), rule, target_ppm, period_days)


def least_target_ppm(rule: Rule, period_days: int) -> int:
    """The loosest target at which the rule can fire."""
    scale = _PERCENT * rule.long_min
    return MILLION - (scale * MILLION - 1) // (rule.spent_percent * period_days * DAY_MIN)


def firing(
    rules: Iterable[Rule], window: Callable[[int], Count], target_ppm: int, period_days: int
) -> list[Firing]:
    """Rules that fire now; `window` tells what was counted in so many minutes until now."""
    found = []
    for rule in rules:
        long, short = window(rule.long_min), window(rule.short_min)
        if not all(_exceeds(each, rule, target_ppm, period_days) for each in (long, short)):
            continue
        enough = (
            long.bad >= BAD_LONG_MIN and short.bad >= BAD_SHORT_MIN and long.total >= TOTAL_LONG_MIN
        )
        found.append(
            Firing(
                rule,
                rule.severity if enough else TICKET,
                burn_rate(long, target_ppm) or 0.0,
                burn_rate(short, target_ppm) or 0.0,
            )
        )
    return found


def _exceeds(count: Count, rule: Rule, target_ppm: int, period_days: int) -> bool:
    """Whether the burn rate is above the rule's factor, in whole numbers."""
    allowed = rule.spent_percent * period_days * DAY_MIN * (MILLION - target_ppm) * count.total
    return count.bad * MILLION * _PERCENT * rule.long_min > allowed
