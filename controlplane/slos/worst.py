"""The requests that spent most of an objective's budget in some time, and what they have in common.

They are read from the recorded requests that the caller may see; which of them were bad is decided
as gateways do (`kernel/objectives/counting.py`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import (
    BigIntegerField,
    Case,
    Count,
    ExpressionWrapper,
    F,
    Func,
    IntegerField,
    Q,
    QuerySet,
    Value,
    When,
)

from controlplane.kernel.measures import PROMPT_BUCKETS
from controlplane.kernel.objectives.burn import MILLION, RULES
from controlplane.kernel.objectives.common import CommonValue, in_common
from controlplane.kernel.objectives.counting import (
    ALL_BUCKETS,
    ALL_OF,
    ANSWER_TOKENS_MIN,
    AVAILABILITY,
    BILLING,
    CACHE_HIT,
    INTER_TOKEN,
    NOT_CAPTURED_CODE,
    OVERHEAD,
    OWN_LIMITS,
    SERVER_FAILED_FROM,
    SHED_CODE,
    STAGE,
    TOO_MANY,
    TOTAL,
    TTFT,
)
from controlplane.kernel.spans import INDEX, SPANS
from controlplane.kernel.statuses import CLIENT_LEFT, FAILED_FROM
from controlplane.slos.models import EVERYONE, Alert, Objective
from controlplane.telemetry.models import RequestRecord
from controlplane.telemetry.reading import bounded_read
from controlplane.telemetry.selectors_requests import hide_nodes, id_floor

WORST_MAX = 10
WINDOW = timedelta(hours=1)
WINDOW_MAX = timedelta(days=1)
GROUPS_MAX = 5_000
DIMENSIONS = ("model", "route", "pool", "node", "region", "key", "bucket")
FAILED = Q(status__gte=SERVER_FAILED_FROM) & ~Q(error_code=SHED_CODE) | Q(status=TOO_MANY) & ~Q(
    error_code__in=OWN_LIMITS
)
SERVED = (Q(status__lt=FAILED_FROM) | Q(status=CLIENT_LEFT, ttft_us__gte=0)) & ~Q(
    error_code=SHED_CODE
)


@dataclass(frozen=True)
class Worst:
    """At most `WORST_MAX` bad requests of [start, end), the worst first, of `requests` in all.

    Each row's `badness` is microseconds, of the cache hit rate the millionths that were not
    cached; None where the request failed. `common` is empty where no value stands out.
    """

    start: datetime
    end: datetime
    requests: int
    rows: list[RequestRecord]
    common: list[CommonValue]


def alert_window(alert: Alert | None, now: datetime) -> tuple[datetime, datetime]:
    """From the beginning of the long window that set an alert off to its end, at most the last day
    of it; without an alert the last hour.
    """
    if alert is None:
        return now - WINDOW, now
    lengths = {rule.name: timedelta(minutes=rule.long_min) for rule in RULES}
    end = alert.recovered_at or now
    return max(alert.created_at - lengths.get(alert.rule, WINDOW), end - WINDOW_MAX), end


def worst_requests(
    *,
    objective: Objective,
    organizations: Sequence[UUID],
    window: tuple[datetime, datetime],
    nodes: bool,
) -> Worst:
    """What is bad by the objective among requests of these organizations; raises TooMuchToRead.

    Without `nodes` no node is told, nor compared.
    """
    start, end = window
    seen = list(organizations)
    if objective.organization != EVERYONE:
        seen = [one for one in seen if one == objective.organization]
    with bounded_read(seen):
        scope = _scope(objective, seen).filter(
            request__gte=id_floor(start), request__lt=id_floor(end)
        )
        rows = list(_bad(objective, scope).defer("receipt")[:WORST_MAX])
        dimensions = [one for one in DIMENSIONS if nodes or one != "node"]
        grouped = scope.order_by().values(*dimensions).annotate(requests=Count("request"))
        groups = list(grouped[: GROUPS_MAX + 1])
        complete = len(groups) <= GROUPS_MAX
        requests = sum(one["requests"] for one in groups) if complete else scope.count()
    common = []
    if complete:
        own = [_values(vars(row), dimensions) for row in rows]
        common = in_common(own, [(_values(one, dimensions), one["requests"]) for one in groups])
    for row in rows if not nodes else ():
        hide_nodes(row)
    return Worst(start, end, requests, rows, common)


def _values(row: dict[str, Any], dimensions: Sequence[str]) -> dict[str, str]:
    return {name: str(row[name]) for name in dimensions}


def _scope(objective: Objective, organizations: Sequence[UUID]) -> QuerySet[RequestRecord]:
    whens = [
        When(prompt_tokens__lte=bound, then=Value(place))
        for place, bound in enumerate(PROMPT_BUCKETS)
    ]
    bucket = Case(*whens, default=Value(len(PROMPT_BUCKETS)), output_field=IntegerField())
    rows = RequestRecord.objects.filter(organization__in=organizations).annotate(bucket=bucket)
    for name in ("model", "route", "project", "pool", "region"):
        if value := getattr(objective, name):
            rows = rows.filter(**{name: value})
    if objective.prompt_bucket != ALL_BUCKETS:
        rows = rows.filter(bucket=objective.prompt_bucket)
    return rows


def _bad(objective: Objective, rows: QuerySet[RequestRecord]) -> QuerySet[RequestRecord]:
    """Those that are bad by the objective, the worst first; what failed comes last."""
    indicator = objective.indicator
    if objective.parts:
        found = _bad_by_parts(objective, rows)
    elif indicator == AVAILABILITY:
        none = Value(None, output_field=BigIntegerField())
        return rows.filter(FAILED).annotate(badness=none).order_by("-request")
    else:
        bad, _ = _verdicts(indicator, objective.threshold, "badness")
        found = rows.annotate(badness=_badness(indicator)).filter(bad)
    return found.order_by(F("badness").desc(nulls_last=True), "-prompt_tokens", "-request")


def _bad_by_parts(objective: Objective, rows: QuerySet[RequestRecord]) -> QuerySet[RequestRecord]:
    """`badness` is the total time: parts have no measure in common."""
    bad, good = Q(), Q()
    for place, part in enumerate(objective.parts):
        indicator, name = part["indicator"], f"badness_{place}"
        if indicator != AVAILABILITY:
            rows = rows.annotate(**{name: _badness(indicator)})
        is_bad, is_good = _verdicts(indicator, part["threshold"], name)
        bad, good = bad | is_bad, good | is_good
    rows = rows.annotate(badness=F("total_us")).filter(bad)
    # A CASE, since what is not known is no good, and NOT would not say so.
    kept = Case(When(good, then=Value(1)), default=Value(0), output_field=IntegerField())
    return rows if objective.indicator == ALL_OF else rows.annotate(kept=kept).filter(kept=0)


def _verdicts(indicator: str, threshold: int, name: str) -> tuple[Q, Q]:
    """Which requests are bad and which good by an indicator whose badness has this name."""
    if indicator == AVAILABILITY:
        return FAILED, SERVED
    limit = MILLION - threshold if indicator == CACHE_HIT else threshold
    bad, good = Q(**{f"{name}__gt": limit}), Q(**{f"{name}__lte": limit})
    if indicator in (TTFT, TOTAL):
        bad |= FAILED
    if indicator == BILLING:
        bad |= Q(error_code=NOT_CAPTURED_CODE)
        good &= ~Q(error_code=NOT_CAPTURED_CODE)
    counts = _COUNTS.get(indicator, Q())
    return counts & bad, counts & good


_COUNTS = {
    TTFT: Q(stream=True),
    INTER_TOKEN: Q(output_tokens__gte=ANSWER_TOKENS_MIN) & (SERVED | FAILED),
    CACHE_HIT: Q(prompt_tokens__gt=0, output_tokens__gt=0) & SERVED,
}


def _badness(indicator: str) -> Any:
    if indicator in (TTFT, TOTAL):
        column = "ttft_us" if indicator == TTFT else "total_us"
        served = When(SERVED & Q(**{f"{column}__gte": 0}), then=F(column))
        return Case(served, output_field=BigIntegerField())
    if indicator == INTER_TOKEN:
        return _whole(_span("s5_infer.decode") / (F("output_tokens") - 1))
    if indicator == OVERHEAD:
        return _whole(F("total_us") - _span("s5_infer"))
    if indicator == CACHE_HIT:
        missed = F("prompt_tokens") - F("cached_tokens")
        return _whole(missed * Value(MILLION, BigIntegerField()) / F("prompt_tokens"))
    return _span("s7_bill" if indicator == BILLING else indicator.removeprefix(STAGE))


def _whole(expression: Any) -> Any:
    return ExpressionWrapper(expression, output_field=BigIntegerField())


def _span(name: str) -> Func:
    """Microseconds of a span, or NULL."""
    return Func(
        F("spans"),
        Value(INDEX[name]),
        Value(len(SPANS)),
        function="telemetry_span_us",
        output_field=BigIntegerField(),
    )
