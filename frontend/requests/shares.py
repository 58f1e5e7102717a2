"""What the list of requests is made of: by outcome, ending, rule, pool and node, as links; and bars
of its volume, placed by the server in per cent. Pure arithmetic.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from controlplane.telemetry.selectors_requests import Tally, TallyGroup, Volume, tally
from frontend.shared import formats
from frontend.shared.filters import STATUSES, Filters, TimeRange

ROWS_SHOWN = 6
HUNDRED = 100.0
OK = 200
# Those that the filter knows one by one.
KNOWN_STATUSES = frozenset(value for value, _ in STATUSES if value.isdecimal())
GAP = 0.15


@dataclass(frozen=True)
class ShareRow:
    """One value: its requests, their share, their cost, and the query that shows them alone."""

    name: str
    requests: int
    nano: int
    share: str
    width: float
    query: str


@dataclass(frozen=True)
class Share:
    """One dimension; `note` says what the eye would miss."""

    name: str
    title: str
    rows: list[ShareRow]
    note: str = ""


def make_shares(groups: list[TallyGroup], filters: Filters, within: TimeRange) -> list[Share]:
    """The tables, the most requests first in each."""
    total = sum(group.requests for group in groups)
    parts: tuple[tuple[str, str, tuple[str, ...]], ...] = (
        ("outcome", "Outcome", ("status", "error_code")),
        ("finish", "Ending", ("finish",)),
        ("route", "Rule", ("route",)),
        ("pool", "Pool and region", ("pool", "region")),
    )
    if any(group.node for group in groups):
        parts += (("node", "Node", ("node",)),)
    return [
        Share(
            name,
            title,
            _rows(tally(groups, *dimensions), dimensions, filters, within, total),
            _imbalance(groups) if name == "node" else "",
        )
        for name, title, dimensions in parts
    ]


def _rows(
    found: list[Tally], dimensions: tuple[str, ...], filters: Filters, within: TimeRange, total: int
) -> list[ShareRow]:
    rows = [
        _row(
            one,
            _query(dict(zip(dimensions, one.value, strict=True)), filters, within),
            total,
            f"No {dimensions[0]}",
        )
        for one in found[:ROWS_SHOWN]
    ]
    if rest := found[ROWS_SHOWN:]:
        others = Tally(
            ("1 other" if len(rest) == 1 else f"{len(rest):,} others",),
            sum(one.requests for one in rest),
            sum(one.nano for one in rest),
        )
        rows.append(_row(others, "", total, ""))
    return rows


def _row(one: Tally, query: str, total: int, nothing: str) -> ShareRow:
    words = " ".join(str(part) for part in one.value if part not in ("", None))
    return ShareRow(
        name=words or nothing,
        requests=one.requests,
        nano=one.nano,
        share=formats.percent(one.requests, total),
        width=round(HUNDRED * one.requests / total, 3),
        query=query,
    )


def _query(value: Mapping[str, Any], filters: Filters, within: TimeRange) -> str:
    """The same list narrowed to a value; empty where no filter says that."""
    names = {"error_code": "error", "finish": "finish", "route": "route"}
    names |= {"pool": "pool", "region": "region"}
    narrowed = {names[name]: part for name, part in value.items() if name in names and part}
    if str(value.get("status", "")) in KNOWN_STATUSES:
        narrowed["status"] = str(value["status"])
    elif value.get("status") == OK:
        narrowed["status"] = "ok"
    return replace(filters, **narrowed).query(within) if narrowed else ""


def _imbalance(groups: Iterable[TallyGroup]) -> str:
    """How uneven the load of nodes is: the busiest over the mean."""
    counts = [one.requests for one in tally(groups, "node") if one.value[0]]
    if len(counts) < 2:
        return ""
    times = formats.significant(max(counts) * len(counts) / sum(counts))
    return f"the busiest took {times} times the mean"


@dataclass(frozen=True)
class VolumeBar:
    """One step: failed requests stand on top of the others."""

    left: float
    width: float
    ok_top: float
    ok_height: float
    failed_top: float
    failed_height: float
    title: str


@dataclass(frozen=True)
class VolumeBars:
    bars: list[VolumeBar]
    requests: int
    failed: int
    gone: int
    most: int
    step_s: int


def volume_bars(rows: Sequence[Volume], within: TimeRange) -> VolumeBars:
    """Bars of a range; steps without requests have none."""
    most = max((row.requests for row in rows), default=0)
    width = HUNDRED * within.step_s / within.seconds
    bars = []
    for row in rows:
        left = HUNDRED * (row.at - within.start).total_seconds() / within.seconds
        failed = HUNDRED * row.failed / most
        ok = HUNDRED * (row.requests - row.failed) / most
        bars.append(
            VolumeBar(
                left=round(left, 3),
                width=round(max(width - 2 * GAP, GAP), 3),
                ok_top=round(HUNDRED - ok, 3),
                ok_height=round(ok, 3),
                failed_top=round(HUNDRED - ok - failed, 3),
                failed_height=round(failed, 3),
                title=f"{row.at:%Y-%m-%d %H:%M} UTC: {row.requests:,} requests, "
                f"{row.failed:,} failed, {row.gone:,} cancelled by client",
            )
        )
    return VolumeBars(
        bars=bars,
        requests=sum(row.requests for row in rows),
        failed=sum(row.failed for row in rows),
        gone=sum(row.gone for row in rows),
        most=most,
        step_s=within.step_s,
    )
