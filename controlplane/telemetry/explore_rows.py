"""Explore from request rows, within bounds: all that match are counted, and times are read of them
all or of a random part.

The part is chosen by the random end of a request's id, so that the same question has the same
answer.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, timedelta
from typing import Any

from django.db.models import (
    Count,
    DateTimeField,
    DurationField,
    F,
    Func,
    IntegerField,
    JSONField,
    Q,
    QuerySet,
    Sum,
    TextField,
    Value,
)
from django.db.models.expressions import Combinable
from django.db.models.functions import Coalesce, ExtractHour

from controlplane.kernel.measures import PROMPT_BUCKETS, STAGE_NAMES
from controlplane.kernel.spans import ABSENT, INDEX
from controlplane.kernel.statuses import CLIENT_LEFT
from controlplane.telemetry import exploration
from controlplane.telemetry.exploration import (
    COLUMNS,
    SPAN_OF,
    Exploration,
    Explored,
    ExploredGroup,
)
from controlplane.telemetry.reading import bounded_read
from controlplane.telemetry.selectors import TIME, UsageSum
from controlplane.telemetry.selectors_requests import FAILED, request_rows
from controlplane.telemetry.tiers import EPOCH

# Rows whose times are read, and milliseconds that one reading may take.
ROWS_MAX = 20_000
MS_MAX = 4_000
# Of the ids' last 16 bits so many choose a row; fewer than fit, so that the bound cuts none off.
_CHANCES = 65_536
_AIM = 0.98


def explore_rows(ask: Exploration) -> Explored:
    """The answer from rows; raises TooMuchToRead."""
    found, others = _count(ask)
    groups = {value: ExploredGroup(usage) for value, usage in found.items()}
    beyond = ExploredGroup(others)
    matching = others.requests + sum(usage.requests for usage in found.values())
    read = _read_times(ask, matching) if ask.measure and matching else []
    for *value, took in read:
        if took is not None:
            groups.get(tuple(value), beyond).times.record(took)
    return Explored(groups, beyond, len(read))


_SUMS = {
    "requests": Count("request"),
    "errors": Count("request", filter=FAILED),
    "gone": Count("request", filter=Q(status=CLIENT_LEFT)),
    "prompt": Coalesce(Sum("prompt_tokens"), 0),
    "cached": Coalesce(Sum("cached_tokens"), 0),
    "output": Coalesce(Sum("output_tokens"), 0),
    "nano": Coalesce(Sum("cost_nano"), 0, output_field=IntegerField()),
}


def _usage(row: Mapping[str, Any]) -> UsageSum:
    counts = {name: int(row[name]) for name in _SUMS}
    counts["uncached"] = counts.pop("prompt") - counts["cached"]
    return UsageSum(**counts)


def _count(ask: Exploration) -> tuple[dict[tuple[Any, ...], UsageSum], UsageSum]:
    """Exact sums of groups, and of those beyond the bound together."""
    names = _names(ask)
    beyond = UsageSum()
    with bounded_read(ask.organizations, MS_MAX):
        rows = _rows(ask).order_by()
        summed = rows.values(*names).annotate(**_SUMS).order_by("-requests", *names)
        found = list(summed[: exploration.GROUPS_MAX + 1])
        if len(found) > exploration.GROUPS_MAX:
            beyond = _usage(rows.aggregate(**_SUMS))
            found.pop()
    groups = {tuple(row[name] for name in names): _usage(row) for row in found}
    if beyond.requests:
        for usage in groups.values():
            beyond.take(usage)
    return groups, beyond


def _read_times(ask: Exploration, matching: int) -> list[tuple[Any, ...]]:
    """Values of the groups and microseconds of the measure, None where it did not happen."""
    told = _TOLD.get(ask.measure, _span_time)
    columns = ("total_us", "ttft_us", "output_tokens", "spans")
    with bounded_read(ask.organizations, MS_MAX):
        rows = _rows(ask).order_by()
        if matching > ROWS_MAX:
            rows = rows.annotate(die=_die()).filter(
                die__lt=round(_CHANCES * _AIM * ROWS_MAX / matching)
            )
        found = rows.values_list(*_names(ask), *columns)[:ROWS_MAX]
        size = len(ask.by)
        return [(*row[:size], told(ask.measure, *row[size:])) for row in found]


def _span_time(measure: str, _total: int, _ttft: int, _output: int, spans: bytes) -> int | None:
    """Starts come first, then durations; older rows may not know of the newest spans."""
    index, half = INDEX[SPAN_OF[measure]], len(spans) // 8
    if index >= half:
        return None
    start, took = (
        int.from_bytes(spans[4 * at : 4 * at + 4], "little", signed=True)
        for at in (index, half + index)
    )
    return None if start == ABSENT else max(0, took)


def _between_tokens(_: str, total: int, ttft: int, output: int, _spans: bytes) -> int | None:
    """The mean of one request: rows keep no single gaps."""
    return (total - ttft) // (output - 1) if ttft >= 0 and output > 1 else None


def _rest(stages: tuple[str, ...]) -> Callable[..., int | None]:
    def told(_: str, total: int, ttft: int, output: int, spans: bytes) -> int:
        took = (_span_time(stage, total, ttft, output, spans) for stage in stages)
        return max(0, total - sum(one or 0 for one in took))

    return told


_TOLD: dict[str, Callable[..., int | None]] = {
    "total": lambda _, total, *__: total,
    "ttft": lambda _, __, ttft, *___: ttft if ttft >= 0 else None,
    "inter_token": _between_tokens,
    "overhead": _rest(("s5_infer",)),
    "unattributed": _rest(STAGE_NAMES),
}


def _names(ask: Exploration) -> list[str]:
    return [f"by_{place}" for place in range(len(ask.by))]


def _rows(ask: Exploration) -> QuerySet[Any]:
    """All that match, with the values that they are grouped by."""
    rows: QuerySet[Any] = request_rows(ask.wanted, ask.organizations)
    makers = (_DIMENSIONS[name] for name in ask.by)
    rows = rows.annotate(**dict(zip(_names(ask), (make(ask) for make in makers), strict=True)))
    if ask.prompt_bucket is not None:
        rows = rows.annotate(long=_bucket(ask)).filter(long=ask.prompt_bucket)
    if ask.template:
        rows = rows.annotate(template=_template(ask)).filter(template=ask.template)
    if ask.label:
        rows = rows.annotate(label=_label(ask)).exclude(label="")
    if ask.label_value is not None:
        rows = rows.filter(label=ask.label_value)
    if ask.hours is not None:
        first, last = ask.hours
        within = (Q(hour__gte=first), Q(hour__lt=last))
        rows = rows.annotate(hour=_hour(ask))
        rows = rows.filter(*within) if first < last else rows.filter(within[0] | within[1])
    return rows


def _die() -> Combinable:
    """The last 16 bits of a request's id, which are random."""
    data = Func(F("request"), function="uuid_send")
    high, low = (
        Func(data, Value(place), function="get_byte", output_field=IntegerField())
        for place in (14, 15)
    )
    return high * 256 + low


def _bucket(_: Exploration) -> Combinable:
    edges = ",".join(str(last + 1) for last in PROMPT_BUCKETS)
    template = f"width_bucket(%(expressions)s, ARRAY[{edges}])"
    return Func(F("prompt_tokens"), template=template, output_field=IntegerField())


def _receipt(*path: str) -> Combinable:
    """A text in a request's receipt, blank where there is none.

    One with an escaped NUL is passed over, since PostgreSQL has no text for it.
    """
    read = Func(
        F("receipt"),
        template="CASE WHEN octet_length(%(expressions)s) > 0 AND"
        " position('\\x5c7530303030'::bytea IN %(expressions)s) = 0"
        " THEN convert_from(%(expressions)s, 'UTF8')::json END",
        output_field=JSONField(),
    )
    keys = (Value(key, output_field=TextField()) for key in path)
    found = Func(read, *keys, function="json_extract_path_text", output_field=TextField())
    return Coalesce(found, Value(""), output_field=TextField())


def _template(_: Exploration) -> Combinable:
    return _receipt("prompt")


def _label(ask: Exploration) -> Combinable:
    return _receipt("labels", *([ask.label] if ask.label else []))


def _hour(_: Exploration) -> Combinable:
    return ExtractHour("started_at", tzinfo=UTC)


def _time(ask: Exploration) -> Combinable:
    step = Value(timedelta(seconds=ask.step_s), output_field=DurationField())
    origin = Value(EPOCH, output_field=DateTimeField())
    return Func(step, F("started_at"), origin, function="date_bin", output_field=DateTimeField())


def _column(name: str) -> Callable[[Exploration], Combinable]:
    return lambda _: F(name)


_DIMENSIONS: dict[str, Callable[[Exploration], Combinable]] = {
    **{name: _column(name) for name in COLUMNS},
    "prompt_bucket": _bucket,
    "template": _template,
    "label": _label,
    "hour": _hour,
    TIME: _time,
}
