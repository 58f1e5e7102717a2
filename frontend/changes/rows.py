"""What a change makes another, and what a dry run found, in words and in the order of columns."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from controlplane.changes.dryruns import LimitsDryRun, RefusedGroup
from controlplane.changes.pricing import CostTally, PricesDryRun
from controlplane.changes.versions import Differing, FieldDifference
from controlplane.kernel.money import usd_from_micro, usd_short, usd_text
from frontend.shared.formats import MISSING, count, moment

FIELD_WORDS = {
    "requests_per_min": "requests per minute",
    "tokens_per_min": "tokens per minute",
    "requests_per_day": "requests per day",
    "concurrency": "concurrent requests",
    "allowance_nano": "budget, USD",
    "period": "period",
    "zone": "time zone",
    "rollover": "carries over",
    "alerts": "alerts, %",
    "input_pico": "input, USD per million tokens",
    "cached_pico": "cached input, USD per million tokens",
    "output_pico": "output, USD per million tokens",
    "batch_permille": "low priority, ‰",
    "priority_permille": "high priority, ‰",
}
KIND_WORDS = {
    "requests": "requests per minute",
    "tokens": "tokens per minute",
    "requests-day": "requests per day",
    "concurrency": "concurrent requests",
    "budget": "budget",
}
REFUSED_HEADS = "#Requests | #Refused now | #Refused by the draft | #Newly | #No longer | #Cost"
COST_HEADS = "#Requests | #Changed | #Cost now | #Cost by the draft | #Difference"


class TrialTable(NamedTuple):
    """A table of a dry run: title, heads as `columns` reads them, and cells of each row."""

    title: str
    heads: str
    rows: list[list[str]]

    @property
    def labelled(self) -> list[list[tuple[str, bool, str]]]:
        """Cells with their heads, and whether they are numbers."""
        heads = [each.strip() for each in self.heads.split("|")]
        return [
            [
                (head.lstrip("#$"), head[0] in "#$", cell)
                for head, cell in zip(heads, row, strict=True)
            ]
            for row in self.rows
        ]


def difference_rows(found: Iterable[Differing]) -> list[tuple[str, list[tuple[str, str, str]]]]:
    """Name, then words, value before and after of each field."""

    def told(each: FieldDifference) -> tuple[str, str, str]:
        name = each.field
        return FIELD_WORDS[name], _shown(name, each.before), _shown(name, each.after)

    return [(one.name, [told(each) for each in one.fields]) for one in found]


def limits_facts(found: LimitsDryRun) -> list[tuple[str, str]]:
    total = found.total
    told = [
        ("Replayed", count(total.requests)),
        ("Refused now", count(total.before)),
        ("Refused by the draft", count(total.after)),
        ("Newly refused", count(total.newly)),
        ("No longer refused", count(total.freed)),
        ("Cost of what is newly refused", usd_short(total.nano)),
    ]
    if found.first and found.last:
        told.append(
            ("Newly refused from, to, UTC", f"{moment(found.first)} – {moment(found.last)}")
        )
    return told


def limits_tables(found: LimitsDryRun) -> list[TrialTable]:
    """By what refuses, whose requests, and when."""
    reached = [[one.of, KIND_WORDS[one.kind], count(one.requests)] for one in found.reached]
    hours = [one for one in found.hours if one.tally.newly or one.tally.freed]
    return [
        TrialTable("Limits of the draft that refuse", "Whose | Limit | #Requests", reached),
        *(
            TrialTable(f"{title}s", f"{title} | {REFUSED_HEADS}", _refused(groups))
            for title, groups in (
                ("Project", found.projects),
                ("Key", found.keys),
                ("Model", found.models),
            )
        ),
        TrialTable("When", f"Hour, UTC | {REFUSED_HEADS}", _refused(hours)),
    ]


def prices_facts(found: PricesDryRun) -> list[tuple[str, str]]:
    total = found.total
    return [
        ("Priced", count(total.requests)),
        ("Changed", count(total.changed)),
        ("Charged at the time", usd_short(total.charged_nano)),
        ("By the prices now", usd_short(total.before_nano)),
        ("By the draft", usd_short(total.after_nano)),
        ("Without a price", count(found.unpriced)),
    ]


def prices_tables(found: PricesDryRun) -> list[TrialTable]:
    """By whose requests."""
    return [
        TrialTable(
            f"{title}s",
            f"{title} | {COST_HEADS}",
            [[one.name, *_cost(one.tally)] for one in groups],
        )
        for title, groups in (
            ("Organization", found.organizations),
            ("Project", found.projects),
            ("Model", found.models),
        )
    ]


def _refused(groups: Iterable[RefusedGroup]) -> list[list[str]]:
    return [
        [
            one.name,
            *(
                count(getattr(one.tally, name))
                for name in ("requests", "before", "after", "newly", "freed")
            ),
            usd_short(one.tally.nano),
        ]
        for one in groups
    ]


def _cost(tally: CostTally) -> list[str]:
    amounts = (tally.before_nano, tally.after_nano, tally.after_nano - tally.before_nano)
    return [count(tally.requests), count(tally.changed), *map(usd_short, amounts)]


def _shown(name: str, value: Any) -> str:
    if value is None or value == ():
        return MISSING
    if name.endswith("_nano"):
        return usd_text(value)
    if name.endswith("_pico"):
        return usd_from_micro(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ", ".join(str(one) for one in value)
    return count(value) if isinstance(value, int) else str(value)
