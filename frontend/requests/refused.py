"""Which limit refused a request: in words, and where it is set, for those who may set it."""

from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

from django.urls import reverse

from controlplane.billing.budgets.selectors import BudgetRow, budget_list
from controlplane.core.permissions import Action
from controlplane.kernel.calendar import period_around
from controlplane.kernel.limits import ReachedLimit
from controlplane.kernel.money import usd_short
from controlplane.kernel.receipt import Receipt
from controlplane.telemetry.models import RequestRecord
from controlplane.tenants.selectors import organization_ids
from frontend.shared import formats
from frontend.shared.access import Viewer

LIMITED = 429
KIND_WORDS = {
    "requests": "requests a minute",
    "tokens": "tokens a minute",
    "requests-day": "requests a day",
    "concurrency": "concurrent requests",
}
PERIOD_WORDS = {"day": "a day", "week": "a week", "month": "a month", "none": "in total"}
WALLET = "wallet"


@dataclass(frozen=True)
class Door:
    """A link to where something is set."""

    url: str
    words: str


@dataclass(frozen=True)
class Refused:
    """A limit's refusal: shortly for a list, in sentences for the request's own page."""

    short: str
    sentences: list[str]
    door: Door | None


def find_refused(viewer: Viewer, record: RequestRecord, receipt: Receipt) -> Refused | None:
    """What refused a request; None for one that no limit refused, or whose record says nothing."""
    limit = receipt.limit if record.status == LIMITED else None
    if limit is None:
        return None
    return Refused(limit_short(limit), limit_sentences(limit), limit_door(viewer, record, limit))


def limit_short(limit: ReachedLimit) -> str:
    """Whose limit and which: “project, 60 requests a minute”."""
    if limit.kind == "uncounted":
        return "limits could not be counted"
    if limit.scope == WALLET:
        return "the organization's wallet"
    if limit.kind == "budget":
        return f"{limit.scope}, its budget"
    return f"{limit.scope}, {formats.count(limit.limit)} {KIND_WORDS[limit.kind]}"


def limit_sentences(limit: ReachedLimit) -> list[str]:
    """The same at length, with what it asked for and when there would have been room."""
    if limit.kind == "uncounted":
        return ["Load was too high to check its limits in time."]
    if limit.kind == "budget":
        cost = "" if limit.asked is None else f", {usd_short(limit.asked)}"
        whose = (
            "organization's prepaid wallet" if limit.scope == WALLET else f"{limit.scope}'s budget"
        )
        return [f"The {whose} was lower than its maximum cost{cost}."]
    figure = f"The {limit.scope}'s limit of {formats.count(limit.limit)} {KIND_WORDS[limit.kind]}"
    if limit.kind == "concurrency":
        return [f"{figure} was reached: that many were in progress."]
    if limit.asked is not None and limit.limit is not None and limit.asked > limit.limit:
        return [
            f"{figure} can never admit it: it counts as {formats.count(limit.asked)} tokens, "
            "including its output limit."
        ]
    asked = "" if limit.asked is None else f" for its {formats.count(limit.asked)} tokens"
    return [
        f"{figure} was used up.",
        f"There was capacity{asked} {_after(limit.retry_after_ms)}; without other requests, all "
        f"of it would be free {_after(limit.reset_ms)}.",
    ]


def limit_door(viewer: Viewer, record: RequestRecord, limit: ReachedLimit) -> Door | None:
    """Where the limit is set, in the organization that pages show now, for those who may."""
    if viewer.chosen is None or viewer.chosen.id != record.organization:
        return None
    if limit.scope == WALLET:
        return Door(reverse("wallet"), "See the wallet") if viewer.sees_money else None
    if limit.kind == "budget":
        url = f"{reverse('budgets')}#budget-{limit.budget}"
        return Door(url, "Change this budget") if viewer.may(Action.BUDGET_SET) else None
    subjects = {"key": record.key, "project": record.project, "organization": record.organization}
    if limit.scope not in subjects or not viewer.may(Action.LIMIT_SET):
        return None
    return Door(f"{reverse('limits')}#limit-{subjects[limit.scope].hex}", "Change this limit")


def budget_words(viewer: Viewer, record: RequestRecord, receipt: Receipt) -> list[str]:
    """The budget that refused a request, as it is set now, for those who may see budgets."""
    limit = receipt.limit if record.status == LIMITED else None
    if limit is None or not limit.budget:
        return []
    organization = record.organization
    if organization not in organization_ids(user=viewer.user, action=Action.LEDGER_VIEW):
        return []
    rows = budget_list(actor=viewer.user, organization=organization)
    row = next((one for one in rows if one.id.hex == limit.budget), None)
    return [] if row is None else [_terms(row, record.started_at)]


def _terms(row: BudgetRow, at: datetime) -> str:
    may = f"The current limit of that budget is {usd_short(row.available)}"
    left = f"{usd_short(row.room)} of it is left now"
    _, end = period_around(row.period, ZoneInfo(row.zone), at)
    words = PERIOD_WORDS[row.period]
    if end is None:
        return f"{may} {words}; {left}."
    return f"{may} {words}; {left}, and the period of this request ends {formats.moment(end)} UTC."


def _after(wait_ms: int | None) -> str:
    if wait_ms is None:
        return "later"
    return f"{formats.duration(wait_ms * formats.US_PER_MS)} later"
