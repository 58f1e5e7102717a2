"""Reconciliation: what a connection's tokens cost by our books, beside what its provider says.

Ours is the purchase cost of margin: charged tokens at the price of their day. Theirs is entered by
staff, by day and the provider's name of the model.
"""

import csv
import re
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from io import StringIO

import msgspec
from django.core.exceptions import ValidationError
from django.db import transaction

from controlplane.billing.documents.text import usd_read
from controlplane.billing.margin.selectors import purchases_read
from controlplane.connections.models import (
    AMOUNT_NANO_MAX,
    Connection,
    ConnectionModel,
    ProviderAmount,
)
from controlplane.core.audit.entries import Actor, Facts, audit_record
from controlplane.core.permissions import Action
from controlplane.tenants.access import require
from controlplane.tenants.selectors import organization_names

AMOUNTS_MAX = 2_000
CSV_CHARS_MAX = 200_000
CSV_HEAD = ["day", "model", "usd"]
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


class AmountDraft(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a provider charges for one of its models on one UTC day, as `12.34` US dollars."""

    day: date
    upstream: str
    usd: str


@dataclass(frozen=True)
class SpendLine:
    """One model on one day in nano-USD; `theirs` is None where nothing was entered."""

    day: date
    upstream: str
    tokens: int
    ours: int
    theirs: int | None

    @property
    def difference(self) -> int | None:
        """What the provider charges beyond our books."""
        return None if self.theirs is None else self.theirs - self.ours


@dataclass(frozen=True)
class ConnectionSpend:
    """A period by day and model, newest first."""

    lines: list[SpendLine]

    @property
    def ours(self) -> int:
        return sum(line.ours for line in self.lines)

    @property
    def theirs(self) -> int | None:
        """Of all that was entered; None where nothing was."""
        entered = [line.theirs for line in self.lines if line.theirs is not None]
        return sum(entered) if entered else None

    @property
    def difference(self) -> int | None:
        """Over the days and models of which an amount was entered."""
        entered = [line.difference for line in self.lines if line.difference is not None]
        return sum(entered) if entered else None


def spend_read(
    *, actor: Actor, connection: Connection, start: datetime, end: datetime
) -> ConnectionSpend:
    """Of [start, end), both on whole hours; raises TooMuchToRead."""
    require(actor, Action.MARGIN_VIEW)
    rows = ConnectionModel.objects.filter(model__in=_models(connection))
    served = list(rows.select_related("model").order_by("created_at"))
    ours: Counter[tuple[date, str]] = Counter()
    tokens: Counter[tuple[date, str]] = Counter()
    for charged, nano in purchases_read(organization_names(actor=actor), start, end):
        assert charged.model is not None and charged.day is not None
        row = _served_by(served, charged.model, charged.day.date())
        if row is not None and row.connection_id == connection.id:
            place = charged.day.date(), row.upstream
            ours[place] += nano
            tokens[place] += charged.uncached + charged.cached + charged.output
    # Of a day under way, too.
    last = (end - timedelta(microseconds=1)).date()
    told = ProviderAmount.objects.filter(
        connection=connection, day__gte=start.date(), day__lte=last
    )
    theirs = {(one.day, one.upstream): one.nano for one in told}
    places = sorted({*ours, *theirs}, key=lambda place: (-place[0].toordinal(), place[1]))
    return ConnectionSpend(
        [
            SpendLine(day, name, tokens[day, name], ours[day, name], theirs.get((day, name)))
            for day, name in places
        ]
    )


def amounts_set(*, actor: Actor, connection: Connection, drafts: Sequence[AmountDraft]) -> int:
    """Keep these in place of what was entered of the same days and models; how many there are.

    Raises ValidationError that names place and field, `amounts[0].usd`; then nothing is kept.
    """
    require(actor, Action.CATALOG_MANAGE)
    if len(drafts) > AMOUNTS_MAX:
        raise ValidationError({"amounts": f"At most {AMOUNTS_MAX} at a time."})
    rows = [_amount(connection, place, draft) for place, draft in enumerate(drafts)]
    with transaction.atomic():
        for row in rows:
            ProviderAmount.objects.update_or_create(
                connection=connection,
                day=row.day,
                upstream=row.upstream,
                defaults={"nano": row.nano},
            )
        facts: Facts = {"name": connection.name, "amounts": len(rows)}
        audit_record(actor, "connection.amounts", subject=connection, detail=facts)
    return len(rows)


def amounts_of_csv(text: str) -> list[AmountDraft]:
    """Lines of `day,model,usd`, a head may come first; raises ValidationError with the line."""
    if len(text) > CSV_CHARS_MAX:
        raise ValidationError({"csv": f"At most {CSV_CHARS_MAX} characters."})
    found = []
    for number, cells in enumerate(csv.reader(StringIO(text)), start=1):
        cells = [cell.strip() for cell in cells]
        if not any(cells) or cells == CSV_HEAD:
            continue
        if len(cells) != len(CSV_HEAD) or _DAY.fullmatch(cells[0]) is None:
            told = f"Line {number} must be day,model,usd, as 2026-11-28,gpt-4o,12.34."
            raise ValidationError({"csv": told})
        try:
            day = date.fromisoformat(cells[0])
        except ValueError as error:
            raise ValidationError({"csv": f"Line {number}: {cells[0]} is no day."}) from error
        found.append(AmountDraft(day, cells[1], cells[2]))
    return found


def _amount(connection: Connection, place: int, draft: AmountDraft) -> ProviderAmount:
    field = f"amounts[{place}]"
    try:
        nano = usd_read(draft.usd)
    except ValueError:
        nano = -1
    if not 0 <= nano <= AMOUNT_NANO_MAX:
        told = "Must be an amount in US dollars, such as 12.34."
        raise ValidationError({f"{field}.usd": told})
    if draft.day > datetime.now(UTC).date():
        raise ValidationError({f"{field}.day": "Must not be in the future."})
    made = ProviderAmount(connection=connection, day=draft.day, upstream=draft.upstream, nano=nano)
    try:
        made.clean_fields()
    except ValidationError as error:
        raise ValidationError(
            {f"{field}.{name}": told for name, told in error.message_dict.items()}
        ) from error
    return made


def _models(connection: Connection) -> list[uuid.UUID]:
    rows = ConnectionModel.objects.filter(connection=connection)
    return list(rows.values_list("model_id", flat=True))


def _served_by(rows: Sequence[ConnectionModel], model: str, day: date) -> ConnectionModel | None:
    """What served a model on a UTC day; of two the later. `rows` are in the order of time."""
    for row in reversed(rows):
        begun = row.created_at.date() <= day
        ended = row.withdrawn_at is not None and row.withdrawn_at.date() < day
        if row.model.name == model and begun and not ended:
            return row
    return None
