"""A sample of recorded requests with what rules could see of each.

The records keep no body and no tags: the size is told by prompt tokens, tags and priority are
those that the key has now, and alias and size class are known from the receipt.
"""

import uuid
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from django.core.exceptions import ValidationError

from controlplane.core.audit.entries import Actor
from controlplane.kernel.clock import monotonic_s
from controlplane.kernel.receipt import read_receipt
from controlplane.kernel.rules import DIRECT, PRIORITY_NORMAL, Facts
from controlplane.telemetry.selectors_requests import id_floor
from controlplane.telemetry.selectors_traffic import PAGE_ROWS_MAX, TrafficRow, traffic_page
from controlplane.tenants.selectors import (
    ORGANIZATIONS_MAX,
    KeyFacts,
    key_facts,
    organization_names,
)

HOURS_DEFAULT, HOURS_MAX = 24, 168
# Gateways follow within two seconds; requests that began before that saw no trial yet.
SETTLE = timedelta(seconds=3)
ROWS_MAX = 20_000
READ_S_MAX = 8.0
EMBEDDING = frozenset({"embedding", "rerank", "score"})
UNKNOWN_KEY = KeyFacts(frozenset(), PRIORITY_NORMAL)


@dataclass(frozen=True)
class RecordedRequest:
    """Rows, newest first. `complete` says that they are all of [start, end)."""

    start: datetime
    end: datetime
    rows: Sequence[TrafficRow] = field(repr=False)
    complete: bool

    @property
    def begins(self) -> datetime:
        """From when on they are all."""
        whole = self.complete or not self.rows
        return self.start if whole else self.rows[-1].started_at


def hours_back(hours: int) -> timedelta:
    """How far back a dry run reaches; raises ValidationError."""
    if not 1 <= hours <= HOURS_MAX:
        raise ValidationError({"hours": f"Must be 1 to {HOURS_MAX}."})
    return timedelta(hours=hours)


def read_everyone(
    actor: Actor, start: datetime, end: datetime, **bounds: Any
) -> tuple[dict[uuid.UUID, str], RecordedRequest]:
    """Names of all organizations, and a sample of theirs: incomplete where some are not listed."""
    tenants = organization_names(actor=actor)
    sample = read_sample(tenants, start, end, **bounds)
    listed = len(tenants) < ORGANIZATIONS_MAX
    return tenants, replace(sample, complete=sample.complete and listed)


def read_sample(
    organizations: Iterable[uuid.UUID],
    start: datetime,
    end: datetime,
    *,
    rows_max: int = ROWS_MAX,
    seconds_max: float = READ_S_MAX,
    rules: Collection[str] = (),
) -> RecordedRequest:
    """The newest rows within both bounds, read in short transactions, of any version of these
    `rules` or of all; raises TooMuchToRead.
    """
    ends_s = monotonic_s() + seconds_max
    scope, rows, before = list(organizations), list[TrafficRow](), id_floor(end)
    while len(rows) < rows_max and monotonic_s() < ends_s:
        page = traffic_page(scope, start=start, before=before, rules=rules)
        rows += page
        if len(page) < PAGE_ROWS_MAX:
            return RecordedRequest(start, end, rows[:rows_max], complete=len(rows) <= rows_max)
        before = page[-1].request
    return RecordedRequest(start, end, rows[:rows_max], complete=False)


def facts_of(
    rows: Sequence[TrafficRow], *, actor: Actor, organizations: Iterable[uuid.UUID]
) -> list[Facts | None]:
    """What rules see of each row; None where the alias is not known any more."""
    keys = key_facts(actor=actor, organizations=organizations, ids={row.key for row in rows})
    return [_facts(row, keys.get(row.key, UNKNOWN_KEY)) for row in rows]


def _facts(row: TrafficRow, key: KeyFacts) -> Facts | None:
    receipt = read_receipt(row.receipt)
    alias = row.model if row.route == DIRECT else receipt.asked
    if not alias:
        return None
    return Facts(
        alias=alias,
        task="embed" if row.operation in EMBEDDING else "generate",
        organization=row.organization.hex,
        project=row.project.hex,
        tags=key.tags,
        prompt_tokens=row.prompt_tokens,
        priority=key.priority,
        models=key.models,
        size_class=receipt.size.chosen if receipt.size else None,
    )
