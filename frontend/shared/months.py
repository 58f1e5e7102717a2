"""The month in a page's URL, `month=2026-11`, and what is told where it cannot be shown."""

from collections.abc import Mapping
from datetime import datetime

from django.core.exceptions import ValidationError

from controlplane.billing.months.periods import Period, period_of


def month_from(query: Mapping[str, str], now: datetime) -> tuple[Period, str]:
    """The month asked for, or the present one and a sentence on why."""
    named, present = query.get("month"), period_of(now)
    if not named:
        return present, ""
    try:
        wanted = Period(named)
    except ValidationError:
        return present, "Use a month such as 2026-11; showing the current month."
    if wanted > present:
        return present, "That month has not started; showing the current month."
    return wanted, ""
