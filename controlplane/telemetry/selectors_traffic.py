"""Recorded traffic of all organizations, a page at a time, for what is judged row by row."""

import uuid
from collections.abc import Iterable
from datetime import datetime
from functools import reduce
from operator import or_
from typing import NamedTuple

from django.db.models import BinaryField, Case, F, Q, Value, When

from controlplane.kernel.rules import DIRECT
from controlplane.telemetry.models import RequestRecord
from controlplane.telemetry.reading import bounded_read
from controlplane.telemetry.selectors_requests import id_floor

PAGE_ROWS_MAX = 1_000


class TrafficRow(NamedTuple):
    """One finished request; `receipt` is empty unless a rule decided."""

    request: uuid.UUID
    started_at: datetime
    organization: uuid.UUID
    project: uuid.UUID
    key: uuid.UUID
    model: str
    pool: str
    region: str
    route: str
    operation: str
    status: int
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    ttft_us: int
    total_us: int
    cost_nano: int
    end_user: str
    receipt: bytes


def traffic_page(
    organizations: Iterable[uuid.UUID],
    *,
    start: datetime,
    before: uuid.UUID,
    rules: Iterable[str] = (),
) -> list[TrafficRow]:
    """The newest rows below an id, in a transaction of their own; none below the start. Where
    `rules` are named, those that one of them decided, in whichever version.
    """
    receipt = Case(
        When(route=DIRECT, then=Value(b"", output_field=BinaryField())),
        default=F("receipt"),
        output_field=BinaryField(),
    )
    decided = (Q(route__startswith=f"{name}@") for name in rules)
    with bounded_read(organizations):
        within = Q(request__gte=id_floor(start), request__lt=before)
        rows = RequestRecord.objects.filter(within, reduce(or_, decided, Q()))
        found = rows.order_by("-request").annotate(told=receipt)
        fields = (*TrafficRow._fields[:-1], "told")
        return [
            TrafficRow._make((*row[:-1], bytes(row[-1])))
            for row in found.values_list(*fields)[:PAGE_ROWS_MAX]
        ]
