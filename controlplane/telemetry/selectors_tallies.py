"""What a list of requests is made of: by outcome, ending, rule, pool and node, read at once."""

from collections.abc import Iterable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from django.db.models import Count, Sum

from controlplane.telemetry.reading import TooMuchToRead, bounded_read
from controlplane.telemetry.selectors_requests import RequestFilter, request_rows

TALLY_MS_MAX = 1_000
GROUPS_MAX = 5_000
DIMENSIONS = ("status", "error_code", "finish", "route", "pool", "region", "model")


@dataclass(frozen=True)
class Tally:
    """Requests with the same value of some dimensions, and what they cost together."""

    value: tuple[Any, ...]
    requests: int
    nano: int


@dataclass(frozen=True)
class TallyGroup:
    """Requests that are alike in every dimension; `node` is empty where nodes are not told."""

    status: int
    error_code: str
    finish: str
    route: str
    pool: str
    region: str
    model: str
    requests: int
    nano: int
    node: str = ""


def request_groups(wanted: RequestFilter, *, nodes: bool = False) -> list[TallyGroup]:
    """The list in groups; raises TooMuchToRead rather than holding a page up.

    By node, too, with `nodes`: for those who may view the fleet.
    """
    dimensions = (*DIMENSIONS, "node") if nodes else DIMENSIONS
    with bounded_read([wanted.organization], TALLY_MS_MAX):
        rows = (
            request_rows(wanted)
            .order_by()
            .values(*dimensions)
            .annotate(requests=Count("request"), nano=Sum("cost_nano"))
        )
        found = list(rows[: GROUPS_MAX + 1])
    if len(found) > GROUPS_MAX:
        raise TooMuchToRead
    return [TallyGroup(**{**row, "nano": int(row["nano"])}) for row in found]


def tally(groups: Iterable[TallyGroup], *names: str) -> list[Tally]:
    """Sums by some dimensions, the most requests first."""
    value = attrgetter(*names)
    sums: dict[tuple[Any, ...], list[int]] = {}
    for group in groups:
        key = value(group) if len(names) > 1 else (value(group),)
        pair = sums.setdefault(key, [0, 0])
        pair[0] += group.requests
        pair[1] += group.nano
    found = [Tally(key, requests, nano) for key, (requests, nano) in sums.items()]
    return sorted(found, key=lambda one: (-one.requests, str(one.value)))
