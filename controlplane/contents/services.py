"""What projects keep of what was said: who decides, who reads and searches, how it is deleted.

Each reading leaves an audit row that names the requests, and none of their words.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Self
from uuid import UUID

import msgspec
from django.core.exceptions import ObjectDoesNotExist, PermissionDenied, ValidationError
from django.db import connection
from django.db.models import QuerySet
from django.utils import timezone

from controlplane.contents.models import KeptContentRow
from controlplane.contents.sealing import ContentKey, wrapped_anew
from controlplane.core.answers import FIRST_PAGE, LIMIT_MAX, Page, PageAsk
from controlplane.core.audit.entries import Actor, Facts, audit_record
from controlplane.core.jobs.each import drop_in_bites
from controlplane.core.permissions import Action, Role, organization_scope
from controlplane.core.seal import BrokenSeal
from controlplane.kernel.contents.kept import FACTS, KeptContent, body_of, facts_as_terms, words_in
from controlplane.kernel.ids import uuid_asked
from controlplane.telemetry.models import RequestRecord
from controlplane.telemetry.reading import bounded_read
from controlplane.telemetry.selectors_requests import id_floor
from controlplane.tenants.access import allows, permitted, require, role_of
from controlplane.tenants.models import KEEPS_DAYS_MAX, AdminKey, Project, User

FORGET_ROWS_MAX, FORGET_BITES_MAX = 500, 100
WORDS_MAX = 16
PAGE_BYTES_MAX = 8 << 20
ROWS_AT_ONCE = 4
EXPORT_PAGES_MAX = 20


@dataclass(frozen=True)
class Keeping:
    """For how many days a project keeps what was said, 0 being not at all, and who may read it."""

    days: int
    readers: Iterable[str]


@dataclass(frozen=True)
class ContentFilter:
    """Requests that have all of the terms, of the last `days`; None goes as far back as is kept."""

    terms: list[str] = field(default_factory=list)
    days: int | None = None

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Self:
        """As a query string has it; raises ValidationError that names the parameter."""
        text, facts = query.get("words", ""), {name: query.get(name, "") for name in FACTS}
        words, days = list(dict.fromkeys(words_in(text))), query.get("days") or None
        if len(words) > WORDS_MAX or (text.strip() and not words):
            message = f"Must be 1 to {WORDS_MAX} words of two characters or more."
            raise ValidationError({"words": message})
        if not re.fullmatch("[0-9]{1,3}", days or "0"):
            raise ValidationError({"days": "Must be a number of days."})
        if facts["key"]:
            wrong = ValidationError({"key": "Must be the id of a key."})
            facts["key"] = uuid_asked(facts["key"], "key", wrong).hex
        return cls(words + facts_as_terms(facts), None if days is None else int(days))


def contents_configure(*, actor: Actor, project: Project, keeping: Keeping) -> Project:
    """Set what a project keeps, and the roles that may read it.

    0 days destroys its key, so that nothing kept can be read from then on; a job drops the rows.
    Comments of ratings go with it; who may read them may change without that.
    """
    require(actor, Action.CONTENT_MANAGE, project.organization_id)
    roles = set(keeping.readers)
    if not 0 <= keeping.days <= KEEPS_DAYS_MAX:
        raise ValidationError({"keeps_days": f"Must be 0 to {KEEPS_DAYS_MAX}."})
    if not roles <= set(Role):
        raise ValidationError({"content_readers": f"Must be among {', '.join(Role)}."})
    wanted: Facts = {"keeps_days": keeping.days, "content_readers": sorted(roles)}
    before: Facts = {name: getattr(project, name) for name in wanted}
    if not project.keeps_days:
        # Of an earlier key, which is gone.
        contents_forget()
    with organization_scope([project.organization_id]):
        # Two who turn it on together must not give it two keys.
        held = Project.objects.select_for_update().get(id=project.id).content_key
        project.content_key = wrapped_anew(bytes(held) if held else None) if keeping.days else None
        for name, value in wanted.items():
            setattr(project, name, value)
        project.save(update_fields=[*wanted, "content_key"])
        if not keeping.days and (before["keeps_days"] or before == wanted):
            _comments(project).update(comment="")
        audit_record(
            actor, "content.configure", subject=project, detail=wanted, changed=(before, wanted)
        )
    return project


def contents_rewrap(organization_id: UUID) -> int:
    """Wrap the data keys of an organization's projects under the present key; how many have one."""
    with organization_scope([organization_id]):
        rows = Project.objects.select_for_update().filter(organization_id=organization_id)
        found = list(rows.exclude(content_key=None))
        for project in found:
            project.content_key = wrapped_anew(bytes(project.content_key or b""))
            project.save(update_fields=["content_key"])
    return len(found)


def may_read(*, actor: Actor, project: Project) -> bool:
    """Whether an actor is among the project's readers, a program being who made its key.

    Who runs the installation is none of them.
    """
    person = actor.created_by if isinstance(actor, AdminKey) else actor
    role = role_of(person, project.organization_id) if isinstance(person, User) else None
    reads = role is not None and role.value in project.content_readers
    return reads and allows(actor, Action.CONTENT_READ, project.organization_id)


def reader_require(actor: Actor, project: Project) -> None:
    """Return if they may read; strangers get ObjectDoesNotExist, all others PermissionDenied."""
    require(actor, Action.CONTENT_READ, project.organization_id)
    if not may_read(actor=actor, project=project):
        raise PermissionDenied(Action.CONTENT_READ)


def content_read(*, actor: Actor, project: Project, request: UUID, use: str) -> KeptContent:
    """What was said in a request; raises ObjectDoesNotExist where it is not kept.

    `use` tells the audit what it was read for.
    """
    reader_require(actor, project)
    with bounded_read([project.organization_id]):
        found = _read(actor, project, _rows(project).filter(request=request), 1, use)
    if not found.rows:
        raise ObjectDoesNotExist("content")
    return found.rows[0]


def content_page(
    *,
    actor: Actor,
    project: Project,
    wanted: ContentFilter,
    ask: PageAsk = FIRST_PAGE,
    use: str = "search",
) -> Page[KeptContent]:
    """A page of what was said, newest first; it ends early where it holds very much."""
    reader_require(actor, project)
    rows, key = _rows(project), _key(project)
    if key is None:
        return Page([], has_more=False)
    if wanted.days is not None:
        rows = rows.filter(request__gte=id_floor(timezone.now() - timedelta(days=wanted.days)))
    if wanted.terms:
        rows = rows.filter(terms__contains=key.hashes(wanted.terms))
    if ask.after is not None:
        rows = rows.filter(request__lt=ask.after)
    with bounded_read([project.organization_id]):
        return _read(actor, project, rows.order_by("-request"), ask.limit, use)


def content_export(*, actor: Actor, project: Project, wanted: ContentFilter) -> Iterator[bytes]:
    """All that matches as lines of JSON, newest first, within a bound; each page is a reading."""
    reader_require(actor, project)

    def lines() -> Iterator[bytes]:
        ask = PageAsk(limit=LIMIT_MAX)
        for _ in range(EXPORT_PAGES_MAX):
            page = content_page(actor=actor, project=project, wanted=wanted, ask=ask, use="export")
            yield b"".join(msgspec.json.encode(content_json(one)) + b"\n" for one in page.rows)
            if not page.has_more:
                return
            ask = replace(ask, after=UUID(bytes=page.rows[-1].request))

    return lines()


def content_json(content: KeptContent) -> dict[str, Any]:
    """What was said as programs read it: `body` as its client sent it."""
    names = ("model", "path", "started_us", "end_user", "status", "truncated", "choices")
    told = msgspec.to_builtins({name: getattr(content, name) for name in names})
    return {"id": content.public_id, "object": "content", **told, "body": body_of(content)}


def content_delete(*, actor: Actor, project: Project, request: UUID) -> int:
    """Delete what was said in one request, and in its rating; returns 1, or 0 where nothing was."""
    found = KeptContentRow.objects.filter(project=project.id, request=request)
    told: Facts = {"request": str(request)}
    return _delete(actor, project, told, found, _comments(project).filter(request=request))


def end_user_delete(*, actor: Actor, project: Project, end_user: str) -> int:
    """Delete all that one end user said in a project, also in ratings; returns in how many requests
    that was.
    """
    require(actor, Action.CONTENT_DELETE, project.organization_id)
    terms, key = facts_as_terms({"end_user": end_user}), _key(project)
    if not terms:
        raise ValidationError({"end_user": "Must not be empty."})
    # The name itself would outlive in the audit what is deleted here.
    hashes = key.hashes(terms) if key else []
    found = KeptContentRow.objects.filter(project=project.id, terms__contains=hashes)
    told: Facts = {"end_user": f"{hashes[0]:x}"} if hashes else {}
    comments = _comments(project).filter(end_user=end_user)
    return _delete(actor, project, told, found if hashes else found.none(), comments)


def contents_forget() -> int:
    """Drop what projects keep no longer, a bounded number at a time; returns how many."""

    def bite(rows_max: int) -> int:
        with connection.cursor() as cursor:
            cursor.execute("SELECT contents_forget(%s)", [rows_max])
            return int(cursor.fetchone()[0])

    return drop_in_bites(bite, rows_max=FORGET_ROWS_MAX, bites_max=FORGET_BITES_MAX)


def _key(project: Project) -> ContentKey | None:
    """The project's data key, where it keeps anything; raises BrokenSeal."""
    kept = project.content_key
    return None if kept is None else ContentKey(bytes(kept), project.id.hex)


def _rows(project: Project) -> QuerySet[KeptContentRow]:
    """Those that a project keeps still."""
    since = timezone.now() - timedelta(days=project.keeps_days)
    return KeptContentRow.objects.filter(project=project.id, request__gte=id_floor(since))


def _read(
    actor: Actor, project: Project, rows: QuerySet[KeptContentRow], limit: int, use: str
) -> Page[KeptContent]:
    """Open rows and note the reading; what no key opens is as good as gone."""
    found: list[KeptContent] = []
    key, size, has_more = _key(project), 0, False
    if key is None:
        return Page(found, has_more)
    for row in rows[: limit + 1].iterator(chunk_size=ROWS_AT_ONCE):
        if has_more := len(found) == limit or size > PAGE_BYTES_MAX:
            break
        try:
            found.append(key.open(bytes(row.sealed), row.organization.hex, row.request.bytes))
        except BrokenSeal:
            continue
        size += found[-1].size
    if found:
        told: Facts = {"use": use, "requests": [one.public_id for one in found]}
        audit_record(actor, "content.read", subject=project, detail=told)
    return Page(found, has_more)


def _comments(project: Project) -> QuerySet[RequestRecord]:
    """Requests of a project with a comment in their rating."""
    return RequestRecord.objects.filter(project=project.id).exclude(comment="")


def _delete(
    actor: Actor,
    project: Project,
    told: Facts,
    found: QuerySet[KeptContentRow],
    comments: QuerySet[RequestRecord],
) -> int:
    with permitted(actor, Action.CONTENT_DELETE, project.organization_id):
        count = comments.exclude(request__in=found.values("request")).update(comment="")
        comments.update(comment="")
        count += found.delete()[0]
        told = {**told, "requests": count}
        audit_record(actor, "content.delete", subject=project, detail=told)
    return count
