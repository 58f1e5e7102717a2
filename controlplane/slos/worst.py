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
    common = []
    if len(groups) <= GROUPS_MAX:
        own = [_values(vars(row), dimensions) for row in rows]
        common = in_common(own, [(_values(one, dimensions), one["requests"]) for one in groups])
    for row in rows if not nodes else ():
        hide_nodes(row)
    return Worst(start, end, sum(one["requests"] for one in groups), rows, common)


def _values(row: dict[str, Any], dimensions: Sequence[str]) -> dict[str, str]:
    return {name: str(row[name]) for name in dimensions}


def _scope(objective: Objective, organizations: Sequence[UUID]) -> QuerySet[RequestRecord]:
    whens = [
        When(prompt_tokens__lte=bound, then=Value(place))
        for place, bound in enumerate(PROMPT_BUCKETS)
    ]
    bucket = Case(*whens, default=Value(len(PROMPT_BUCKETS)), output_field=IntegerField())
    rows = RequestRecord.objects.filter(organization__in=organizations).annotate(bucket=bucket)
    for name in ("model", "route", "project"):
        if value := getattr(objective, name):
            rows = rows.filter(**{name: value})
    if objective.prompt_bucket != ALL_BUCKETS:
        rows = rows.filter(bucket=objective.prompt_bucket)
    return rows


def _bad(objective: Objective, rows: QuerySet[RequestRecord]) -> QuerySet[RequestRecord]:
    """Those that are bad by the objective, the worst first; what failed comes last."""
    indicator = objective.indicator
    if indicator == AVAILABILITY:
        none = Value(None, output_field=BigIntegerField())
        return rows.filter(FAILED).annotate(badness=none).order_by("-request")
    rows = rows.filter(_COUNTS.get(indicator, Q()))
    limit = MILLION - objective.threshold if indicator == CACHE_HIT else objective.threshold
    bad = Q(badness__gt=limit)
    if indicator in (TTFT, TOTAL):
        bad |= FAILED
    if indicator == BILLING:
        bad |= Q(error_code=NOT_CAPTURED_CODE)
    found = rows.annotate(badness=_badness(indicator)).filter(bad)
    return found.order_by(F("badness").desc(nulls_last=True), "-prompt_tokens", "-request")


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
