"""What a change makes another, and what a dry run found, in words and in the order of columns."""

from collections.abc import Iterable
from typing import Any

from controlplane.changes.dryruns import LimitsDryRun, RefusedGroup
from controlplane.changes.pricing import CostGroup, CostTally, PricesDryRun
from controlplane.changes.versions import Differing, FieldDifference
from controlplane.kernel.money import usd_from_micro, usd_short, usd_text
from frontend.shared.formats import MISSING, count, moment, multiplier, significant
from frontend.shared.panels import TablePanel
from frontend.shared.versions import TrialShown

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
    "batch_permille": "low-priority multiplier",
    "priority_permille": "high-priority multiplier",
}
KIND_WORDS = {
    "requests": "requests per minute",
    "tokens": "tokens per minute",
    "requests-day": "requests per day",
    "concurrency": "concurrent requests",
    "budget": "budget",
}
REFUSED_HEAD = ("Requests", "Refused now", "Refused with draft", "Newly", "No longer", "Cost")
WRITES_HEAD = ["Store", "Now", "With draft", "Per request, now", "Per request, with draft"]
COST_HEAD = ("Requests", "Changed", "Cost now", "Cost with draft", "Difference")


def difference_rows(found: Iterable[Differing]) -> list[tuple[str, list[tuple[str, str, str]]]]:
    """Name, then words, value before and after of each field."""

    def told(each: FieldDifference) -> tuple[str, str, str]:
        name = each.field
        return FIELD_WORDS[name], _shown(name, each.before), _shown(name, each.after)

    return [(one.name, [told(each) for each in one.fields]) for one in found]


def limits_trial(found: LimitsDryRun) -> TrialShown:
    """By what refuses, whose requests, and when."""
    total = found.total
    facts = [
        ("Replayed", count(total.requests)),
        ("Refused now", count(total.before)),
        ("Refused with draft", count(total.after)),
        ("Newly refused", count(total.newly)),
        ("No longer refused", count(total.freed)),
        ("Cost of newly refused", usd_short(total.nano)),
    ]
    if found.first and found.last:
        span = f"{moment(found.first)} – {moment(found.last)}"
        facts.append(("Newly refused from, to, UTC", span))
    reached = [[one.of, KIND_WORDS[one.kind], count(one.requests)] for one in found.reached]
    hours = [one for one in found.hours if one.tally.newly or one.tally.freed]
    return _shown_trial(
        found,
        facts,
        TablePanel(
            "reached", "Limits that refuse with draft", ["Whose", "Limit", "Requests"], reached
        ),
        _writes(found),
        _refused("Project", found.projects),
        _refused("Key", found.keys),
        _refused("Model", found.models),
        _refused("Hour, UTC", hours, "When"),
    )


def prices_trial(found: PricesDryRun) -> TrialShown:
    """By whose requests."""
    total = found.total
    facts = [
        ("Priced", count(total.requests)),
        ("Changed", count(total.changed)),
        ("Charged at the time", usd_short(total.charged_nano)),
        ("At current prices", usd_short(total.before_nano)),
        ("At draft prices", usd_short(total.after_nano)),
        ("Without a price", count(found.unpriced)),
    ]
    return _shown_trial(
        found,
        facts,
        _costs("Organization", found.organizations),
        _costs("Project", found.projects),
        _costs("Model", found.models),
    )


def _shown_trial(
    found: LimitsDryRun | PricesDryRun, facts: list[tuple[str, str]], *tables: TablePanel
) -> TrialShown:
    return TrialShown(
        beside="live version vs. this version",
        start=found.start,
        end=found.end,
        complete=found.complete,
        requests=found.total.requests,
        facts=facts,
        tables=tables,
        notes=found.notes,
    )


def _writes(found: LimitsDryRun) -> TablePanel:
    """How much more or less each store writes, of all requests and of each."""
    body = [
        [
            f"{one.store}: {one.what}",
            *(str(each) for each in (one.before, one.after)),
            *(significant(each / found.total.requests) for each in (one.before, one.after)),
        ]
        for one in found.writes
        if found.total.requests
    ]
    return TablePanel("writes", "Writes to stores", WRITES_HEAD, body)


def _refused(of: str, groups: Iterable[RefusedGroup], title: str = "") -> TablePanel:
    names = ("requests", "before", "after", "newly", "freed")
    body = [
        [
            one.name,
            *(count(getattr(one.tally, name)) for name in names),
            usd_short(one.tally.nano),
        ]
        for one in groups
    ]
    return TablePanel(of.lower(), title or f"{of}s", [of, *REFUSED_HEAD], body)


def _costs(of: str, groups: Iterable[CostGroup]) -> TablePanel:
    body = [[one.name, *_cost(one.tally)] for one in groups]
    return TablePanel(of.lower(), f"{of}s", [of, *COST_HEAD], body)


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
    if name.endswith("_permille"):
        return f"×{multiplier(value)}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ", ".join(str(one) for one in value)
    return count(value) if isinstance(value, int) else str(value)
