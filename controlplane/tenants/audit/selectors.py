"""Reading the audit: who changed what, searched by actor, action, subject and time, newest first.

`organization_id` None stands for the installation's own rows, which are no organization's.
"""

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from django.core.exceptions import ValidationError
from django.db.models import QuerySet

from controlplane.core.answers import FIRST_PAGE, LIMIT_MAX, Page, PageAsk, page_read
from controlplane.core.audit.entries import Actor
from controlplane.core.models import AuditEntry
from controlplane.core.permissions import Action, organization_scope
from controlplane.kernel.ids import uuid_of
from controlplane.telemetry.reading import bounded_read
from controlplane.tenants.access import require

INSTALLATION = uuid.UUID(int=0)
SEARCH_MS_MAX = 2_000
TEXT_CHARS_MAX = 200
FIELDS = ("actor", "action", "subject", "from", "to")


@dataclass(frozen=True)
class AuditFilter:
    """What is looked for; empty texts and None look for anything.

    `actor` is part of a name, `action` the beginning of one (`membership` or `membership.set`),
    `subject` a kind of thing or a thing's id; times are [start, end).
    """

    actor: str = ""
    action: str = ""
    subject: str = ""
    start: datetime | None = None
    end: datetime | None = None


EVERYTHING = AuditFilter()


def audit_filter(given: Mapping[str, str]) -> AuditFilter:
    """The filter that a query string asks for; raises ValidationError by field."""
    texts = {name: given.get(name, "").strip() for name in FIELDS}
    for name, text in texts.items():
        if len(text) > TEXT_CHARS_MAX or "\0" in text:
            raise ValidationError({name: f"Must have at most {TEXT_CHARS_MAX} characters."})
    start, end = _moment("from", texts.pop("from")), _moment("to", texts.pop("to"))
    if start and end and start >= end:
        raise ValidationError({"to": "Must be after `from`."})
    return AuditFilter(**texts, start=start, end=end)


def audit_search(
    *,
    actor: Actor,
    organization_id: uuid.UUID | None,
    wanted: AuditFilter = EVERYTHING,
    ask: PageAsk = FIRST_PAGE,
) -> Page[AuditEntry]:
    """A page of rows, newest first; raises TooMuchToRead where a narrower search would do."""
    _require(actor, organization_id)
    with bounded_read([organization_id or INSTALLATION], SEARCH_MS_MAX):
        return page_read(_matching(wanted), ask)


def audit_page(
    *,
    actor: Actor,
    organization_id: uuid.UUID,
    ask: PageAsk,
    actions: Sequence[str] = (),
    times: Mapping[str, datetime],
) -> Page[AuditEntry]:
    """What was changed, newest first; `times` are conditions on `created_at`, such as `gte`."""
    _require(actor, organization_id)
    wanted = {"action__in": actions} if actions else {}
    moments = {f"created_at__{sign}": moment for sign, moment in times.items()}
    with organization_scope([organization_id]):
        rows = AuditEntry.objects.filter(organization_id=organization_id, **wanted, **moments)
        return page_read(rows, ask)


def audit_pages(
    *, actor: Actor, organization_id: uuid.UUID | None, wanted: AuditFilter = EVERYTHING
) -> Iterator[list[AuditEntry]]:
    """All rows that match, newest first, each page in a short transaction of its own."""
    ask = PageAsk(limit=LIMIT_MAX)
    while True:
        found = audit_search(actor=actor, organization_id=organization_id, wanted=wanted, ask=ask)
        if found.rows:
            yield found.rows
        if not found.has_more:
            return
        ask = PageAsk(after=found.rows[-1].id, limit=LIMIT_MAX)


def _require(actor: Actor, organization_id: uuid.UUID | None) -> None:
    if organization_id is None:
        require(actor, Action.INSTALLATION_AUDIT)
    else:
        require(actor, Action.AUDIT_VIEW, organization_id)


def _matching(wanted: AuditFilter) -> QuerySet[AuditEntry]:
    rows = AuditEntry.objects.all()
    if wanted.actor:
        rows = rows.filter(actor_label__icontains=wanted.actor)
    if wanted.action:
        rows = rows.filter(action__startswith=wanted.action)
    if wanted.subject:
        subject, kind = _id(wanted.subject), wanted.subject.replace(" ", "")
        rows = rows.filter(
            **({"subject_id": subject} if subject else {"subject_type__iexact": kind})
        )
    if wanted.start:
        rows = rows.filter(created_at__gte=wanted.start)
    if wanted.end:
        rows = rows.filter(created_at__lt=wanted.end)
    return rows


def _id(text: str) -> uuid.UUID | None:
    try:
        return uuid_of(text)
    except ValueError:
        return None


def _moment(field: str, text: str) -> datetime | None:
    if not text:
        return None
    try:
        value = datetime.fromisoformat(text)
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValidationError({field: "Must be a date, with or without a time, in UTC."}) from None
