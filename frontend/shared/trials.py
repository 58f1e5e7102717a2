"""What `shared/dry_run.html` shows, whatever was tried: what recorded requests would have met."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.http import HttpRequest

from controlplane.routing.traffic import HOURS_DEFAULT, HOURS_MAX
from frontend.shared.panels import TablePanel

HOURS_OFFERED: tuple[tuple[int | str, str], ...] = (
    (1, "1 hour"), (6, "6 hours"), (24, "24 hours"), (168, "7 days"),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class TrialShown:
    """What was found in words, of so many `requests`; where none could be tried `nothing` says why.

    `beside` is what a version was held against, `told` are sentences with their tones.
    """

    beside: str
    start: datetime
    end: datetime
    complete: bool
    requests: int
    facts: Sequence[tuple[str, str]]
    tables: Sequence[TablePanel]
    notes: Sequence[str]
    told: Sequence[tuple[str, str]] = ()
    nothing: str = "No data in this range; choose more hours."


def hours_asked(request: HttpRequest) -> tuple[int, str]:
    """How far back, and a sentence where the question could not be answered as put."""
    text = request.GET.get("hours", str(HOURS_DEFAULT))
    short = len(text) <= 3 and text.isascii() and text.isdecimal()
    if short and 1 <= int(text) <= HOURS_MAX:
        return int(text), ""
    told = f"“{text[:20]}” is not a number of hours from 1 to {HOURS_MAX}; showing {HOURS_DEFAULT}."
    return HOURS_DEFAULT, told
