"""The life of a prompt template's versions, each step audited: draft, trial, publication, return.

What was published never changes; a rollback publishes a copy of an earlier version under a new
number. All steps of one organization take one lock, so that its bounds hold.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
from django.core.exceptions import ValidationError
from django.db import connection
from django.db.models import Max, QuerySet
from django.utils import timezone

from controlplane.catalog.models import (
    PROMPT_NOTE_CHARS_MAX,
    PromptState,
    PromptTemplate,
    PromptVersion,
)
from controlplane.catalog.selectors_prompts import body_of, served_bytes
from controlplane.core.audit import Actor, Facts, audit_record
from controlplane.core.conflict import Conflict
from controlplane.core.permissions import Action
from controlplane.core.scope import organization_scope
from controlplane.core.shapes import read_shape
from controlplane.kernel.prompts import PromptBody, find_problems
from controlplane.kernel.rules import PERMILLE
from controlplane.tenants.access import require
from controlplane.tenants.models import Project, User

TEMPLATES_MAX = 100
VERSIONS_MAX = 1_000
# Gateways keep this much of one organization's templates in memory, and read it at every change.
SERVED_BYTES_MAX = 512 * 1024


def prompt_create(
    *, actor: Actor, organization_id: uuid.UUID, name: str, project_id: uuid.UUID | None = None
) -> PromptTemplate:
    """A template without versions; with a project only its keys may name it."""
    require(actor, Action.TEMPLATE_MANAGE, organization_id)
    with _alone(organization_id):
        rows = PromptTemplate.objects.filter(organization_id=organization_id)
        if rows.count() >= TEMPLATES_MAX:
            raise ValidationError({"name": f"There are {TEMPLATES_MAX} templates; that is all."})
        if rows.filter(name=name).exists():
            raise Conflict({"name": f"There is a template {name!r} already."})
        made = PromptTemplate(organization_id=organization_id, name=name, project_id=project_id)
        if project_id is not None and not Project.objects.filter(id=project_id).exists():
            raise ValidationError({"project": "There is no such project."})
        made.full_clean()
        made.save(force_insert=True)
        _audit(actor, "prompt.create", made, {"name": name})
    return made


def prompt_draft_create(
    *, actor: Actor, template: PromptTemplate, body: object, note: str = ""
) -> PromptVersion:
    """A draft of the next version; it need not be ready, but of the form of a body."""
    require(actor, Action.TEMPLATE_MANAGE, template.organization_id)
    read = read_shape(body, PromptBody, field="body")
    with _alone(template.organization_id):
        made = _create(actor, template, read, note)
        _tell(actor, "prompt.draft_create", made)
    return made


def prompt_draft_update(
    *, actor: Actor, version: PromptVersion, body: object, note: str
) -> PromptVersion:
    """Change a draft; raises Conflict where it was changed since `version` was read."""
    require(actor, Action.TEMPLATE_MANAGE, version.organization_id)
    read = read_shape(body, PromptBody, field="body")
    with _alone(version.organization_id):
        now = _state(version, PromptState.DRAFT)
        _seen(now, version)
        now.body, now.note, now.revision = _plain(read), _note(note), now.revision + 1
        now.save(update_fields=["body", "note", "revision"])
        _tell(actor, "prompt.draft_update", now)
    return now


def prompt_draft_discard(*, actor: Actor, version: PromptVersion) -> PromptVersion:
    """Give a draft up; it stays readable."""
    require(actor, Action.TEMPLATE_MANAGE, version.organization_id)
    with _alone(version.organization_id):
        now = _retire(_state(version, PromptState.DRAFT))
        _tell(actor, "prompt.draft_discard", now)
    return now


def prompt_publish(*, actor: Actor, version: PromptVersion) -> PromptVersion:
    """Put a draft, or the canary, in force; raises ValidationError by field if it has errors."""
    require(actor, Action.TEMPLATE_MANAGE, version.organization_id)
    with _alone(version.organization_id):
        now = _ready(version, PromptState.DRAFT, PromptState.CANARY)
        before = _put_in_force(now)
        _tell(actor, "prompt.publish", now, before=before.version if before else None)
    return now


def prompt_canary_start(
    *, actor: Actor, version: PromptVersion, share_permille: int
) -> PromptVersion:
    """Give a draft to a share of the requests that name no version, or change that share."""
    require(actor, Action.TEMPLATE_MANAGE, version.organization_id)
    if not 1 <= share_permille < PERMILLE:
        raise ValidationError({"share_permille": f"Must be 1 to {PERMILLE - 1} per mille."})
    with _alone(version.organization_id):
        now = _ready(version, PromptState.DRAFT, PromptState.CANARY)
        others = _others(now)
        if not others.filter(state=PromptState.PUBLISHED).exists():
            raise Conflict({"state": "Nothing is in force yet: publish a version first."})
        if others.filter(state=PromptState.CANARY).exists():
            raise Conflict({"state": "Another version is on trial: publish or stop it first."})
        now.state, now.share_permille = PromptState.CANARY, share_permille
        now.save(update_fields=["state", "share_permille"])
        _check_room(now)
        _tell(actor, "prompt.canary_start", now, share_permille=share_permille)
    return now


def prompt_canary_stop(*, actor: Actor, version: PromptVersion) -> PromptVersion:
    """End the trial: every request gets the published version again."""
    require(actor, Action.TEMPLATE_MANAGE, version.organization_id)
    with _alone(version.organization_id):
        now = _retire(_state(version, PromptState.CANARY))
        _tell(actor, "prompt.canary_stop", now)
    return now


def prompt_rollback(
    *, actor: Actor, template: PromptTemplate, to: PromptVersion | None = None
) -> PromptVersion:
    """Publish a copy of the version before the present one, or of `to`; a canary ends with it."""
    require(actor, Action.TEMPLATE_MANAGE, template.organization_id)
    with _alone(template.organization_id):
        rows = PromptVersion.objects.filter(template=template)
        current = rows.filter(state=PromptState.PUBLISHED).select_related("copy_of").first()
        target = to or (_before(current) if current else None)
        if current is None or target is None or target.published_at is None:
            raise Conflict({"version": "There is no earlier version to go back to."})
        for canary in rows.filter(state=PromptState.CANARY):
            _retire(canary)
        origin = target.copy_of or target
        note = f"back to version {origin.version}"
        made = _create(actor, template, body_of(target), note, copy_of=origin)
        _put_in_force(made)
        _tell(actor, "prompt.rollback", made, before=current.version)
    return made


@contextmanager
def _alone(organization_id: uuid.UUID) -> Iterator[None]:
    with organization_scope([organization_id]):
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_advisory_xact_lock(hashtext('prompts'), hashtext(%s))",
                [str(organization_id)],
            )
        yield


def _create(
    actor: Actor,
    template: PromptTemplate,
    body: PromptBody,
    note: str,
    *,
    copy_of: PromptVersion | None = None,
) -> PromptVersion:
    rows = PromptVersion.objects.filter(template=template)
    number = (rows.aggregate(last=Max("version"))["last"] or 0) + 1
    if number > VERSIONS_MAX:
        raise ValidationError({"version": f"There are {VERSIONS_MAX} versions; that is all."})
    return PromptVersion.objects.create(
        organization_id=template.organization_id,
        template=template,
        version=number,
        body=_plain(body),
        note=_note(note),
        copy_of=copy_of,
        created_by=actor if isinstance(actor, User) else None,
    )


def _ready(version: PromptVersion, *states: PromptState) -> PromptVersion:
    """A version that may be given to requests; raises Conflict and ValidationError."""
    now = _state(version, *states)
    _seen(now, version)
    errors: dict[str, list[str]] = {}
    for problem in find_problems(body_of(now)):
        if not problem.warning:
            errors.setdefault(f"body.{problem.field}", []).append(problem.message)
    if errors:
        raise ValidationError(errors)
    return now


def _state(version: PromptVersion, *states: PromptState) -> PromptVersion:
    now = PromptVersion.objects.select_related("template").get(id=version.id)
    if now.state not in states:
        wanted = " or ".join(state.value for state in states)
        raise Conflict({"state": f"Version {now.version} is {now.state}, not {wanted}."})
    return now


def _seen(now: PromptVersion, version: PromptVersion) -> None:
    if now.revision != version.revision:
        raise Conflict({"revision": "Somebody changed this draft meanwhile: look again."})


def _put_in_force(version: PromptVersion) -> PromptVersion | None:
    before = _others(version).filter(state=PromptState.PUBLISHED).first()
    if before is not None:
        _retire(before)
    version.state, version.published_at = PromptState.PUBLISHED, timezone.now()
    version.share_permille = 0
    version.save(update_fields=["state", "published_at", "share_permille"])
    _check_room(version)
    return before


def _before(current: PromptVersion) -> PromptVersion | None:
    """What was in force before the present text was first."""
    origin = current.copy_of or current
    rows = _others(origin).filter(published_at__lt=origin.published_at)
    return rows.select_related("copy_of").order_by("-published_at").first()


def _others(version: PromptVersion) -> QuerySet[PromptVersion]:
    return PromptVersion.objects.filter(template_id=version.template_id).exclude(id=version.id)


def _retire(version: PromptVersion) -> PromptVersion:
    version.state = PromptState.RETIRED
    version.save(update_fields=["state"])
    return version


def _check_room(version: PromptVersion) -> None:
    total = served_bytes(version.organization_id)
    if total > SERVED_BYTES_MAX:
        told = (
            f"The organization's templates would take {total} bytes on gateways; there is room"
            f" for {SERVED_BYTES_MAX}."
        )
        raise ValidationError({"body": told})


def _plain(body: PromptBody) -> object:
    return msgspec.json.decode(msgspec.json.encode(body))


def _note(text: str) -> str:
    if len(text) > PROMPT_NOTE_CHARS_MAX or not text.isprintable():
        told = f"One line of at most {PROMPT_NOTE_CHARS_MAX} printable characters."
        raise ValidationError({"note": told})
    return text


def _tell(actor: Actor, action: str, version: PromptVersion, **more: int | None) -> None:
    """Numbers only: prompts are never in the audit."""
    detail: Facts = {"name": version.template.name, "version": version.version, **more}
    _audit(actor, action, version, detail)


def _audit(
    actor: Actor, action: str, subject: PromptTemplate | PromptVersion, detail: Facts
) -> None:
    organization_id = subject.organization_id
    audit_record(actor, action, subject=subject, organization_id=organization_id, detail=detail)
