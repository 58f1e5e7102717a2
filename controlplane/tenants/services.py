"""Everything that changes organizations, members, projects and keys; each with its audit row."""

import re
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import IntegrityError
from django.utils import timezone
from psycopg.errors import UniqueViolation

from controlplane.core.audit import Actor, audit_record
from controlplane.core.permissions import Action, Role
from controlplane.core.scope import organization_scope
from controlplane.kernel.clock import wall_s
from controlplane.kernel.keyformat import digest, new_credential, redacted
from controlplane.kernel.playtoken import LIFETIME_S, PlayGrant, sign_grant
from controlplane.kernel.rules import PRIORITIES, PRIORITY_NORMAL
from controlplane.tenants.access import require
from controlplane.tenants.models import (
    NAME_CHARS_MAX,
    ONE_KEY_OF_A_FORM,
    TAG_CHARS_MAX,
    TAGS_MAX,
    WEIGHT_MAX,
    WEIGHT_MIN,
    ApiKey,
    Membership,
    Organization,
    Project,
    SafetyMode,
    User,
)

KEY_LIFETIME_DAYS_DEFAULT = 90
KEY_LIFETIME_DAYS_MAX = 3_650
ALLOWED_MODELS_MAX = 100
PLAYGROUND_BUDGETS_MAX = 8
REASON_CHARS_MAX = 200
_TAG = re.compile(rf"[a-z0-9][a-z0-9._-]{{0,{TAG_CHARS_MAX - 1}}}")


@dataclass(frozen=True)
class CreatedKey:
    """A new key and its secret, which is known here and never again."""

    key: ApiKey
    secret: str = field(repr=False)


@dataclass(frozen=True)
class KeyTerms:
    """What a key may ask for, and how its requests are routed and queued.

    `models` None allows every model. A `priority` above normal takes the right to set limits.
    """

    models: Iterable[str] | None = None
    tags: Iterable[str] = ()
    priority: int = PRIORITY_NORMAL


EVERY_MODEL = KeyTerms()


class AlreadyCreated(Exception):
    """This form was sent before and has made its key."""


def organization_create(*, actor: Actor, name: str, owner: User) -> Organization:
    """A new organization with its first owner."""
    require(actor, Action.ORGANIZATION_CREATE)
    made = Organization(name=clean_name(name))
    with organization_scope([made.id]):
        made.save(force_insert=True)
        Membership.objects.create(organization=made, user=owner, role=Role.OWNER.value)
        audit_record(
            actor,
            "organization.create",
            subject=made,
            organization_id=made.id,
            detail={"name": made.name, "owner": owner.email},
        )
    return made


def project_create(*, actor: Actor, organization: Organization, name: str) -> Project:
    """A new project; its safety layer and content logging start off."""
    require(actor, Action.PROJECT_CREATE, organization.id)
    made = Project(organization=organization, name=clean_name(name))
    with organization_scope([organization.id]):
        if Project.objects.filter(organization=organization, name=made.name).exists():
            raise ValidationError({"name": "This organization has a project of that name."})
        made.save(force_insert=True)
        audit_record(
            actor,
            "project.create",
            subject=made,
            organization_id=organization.id,
            detail={"name": made.name},
        )
    return made


def project_update(
    *, actor: Actor, project: Project, safety_mode: str, allow_content_logging: bool
) -> Project:
    """Set what a project decides about its requests."""
    require(actor, Action.PROJECT_UPDATE, project.organization_id)
    if safety_mode not in SafetyMode.values:
        raise ValidationError({"safety_mode": f"Must be one of {', '.join(SafetyMode.values)}."})
    with organization_scope([project.organization_id]):
        project.safety_mode = safety_mode
        project.allow_content_logging = allow_content_logging
        project.save(update_fields=["safety_mode", "allow_content_logging"])
        audit_record(
            actor,
            "project.update",
            subject=project,
            organization_id=project.organization_id,
            detail={"safety_mode": safety_mode, "allow_content_logging": allow_content_logging},
        )
    return project


def project_weigh(*, actor: Actor, project: Project, weight: int) -> Project:
    """Set a project's share where tenants compete for full nodes.

    Only for who runs the installation: what one tenant gains here, the others lose.
    """
    require(actor, Action.ROUTING_MANAGE)
    if not WEIGHT_MIN <= weight <= WEIGHT_MAX:
        raise ValidationError({"weight": f"Must be {WEIGHT_MIN} to {WEIGHT_MAX}."})
    with organization_scope([project.organization_id]):
        project.weight = weight
        project.save(update_fields=["weight"])
        audit_record(
            actor,
            "project.weigh",
            subject=project,
            organization_id=project.organization_id,
            detail={"weight": weight},
        )
    return project


def apikey_create(
    *,
    actor: Actor,
    project: Project,
    label: str,
    terms: KeyTerms = EVERY_MODEL,
    lifetime_days: int | None = KEY_LIFETIME_DAYS_DEFAULT,
    form: uuid.UUID | None = None,
) -> CreatedKey:
    """A new key. `lifetime_days` None never expires.

    Raises AlreadyCreated for a `form` that has made one: the database decides, so that of two
    clicks at once exactly one makes a key.
    """
    require(actor, Action.KEY_CREATE, project.organization_id)
    if terms.priority > PRIORITY_NORMAL:
        require(actor, Action.LIMIT_SET, project.organization_id)
    credential = new_credential()
    key = ApiKey(
        organization_id=project.organization_id,
        project=project,
        key_id=credential.key_id,
        digest=digest(credential.text, settings.KEY_PEPPER),
        redacted=redacted(credential),
        label=clean_name(label, field_name="label"),
        created_by=actor if isinstance(actor, User) else None,
        allowed_models=clean_models(terms.models),
        tags=clean_tags(terms.tags),
        priority=_clean_priority(terms.priority),
        expires_at=_expiry(lifetime_days),
        form=form,
    )
    with _once(), organization_scope([project.organization_id]):
        key.save(force_insert=True)
        audit_record(
            actor,
            "apikey.create",
            subject=key,
            organization_id=project.organization_id,
            detail={
                "key": key.redacted,
                "label": key.label,
                "project": str(project.id),
                "models": key.allowed_models,
                "lifetime_days": lifetime_days,
                "tags": key.tags,
                "priority": key.priority,
            },
        )
    return CreatedKey(key, credential.text)


@contextmanager
def _once() -> Iterator[None]:
    try:
        yield
    except IntegrityError as error:
        cause = error.__cause__
        if isinstance(cause, UniqueViolation) and cause.diag.constraint_name == ONE_KEY_OF_A_FORM:
            raise AlreadyCreated from error
        raise


def apikey_revoke(*, actor: Actor, key: ApiKey, reason: str = "") -> bool:
    """Revoke at once; gateways follow within two seconds. False where it was revoked before."""
    require(actor, Action.KEY_REVOKE, key.organization_id)
    if len(reason) > REASON_CHARS_MAX:
        raise ValidationError({"reason": f"At most {REASON_CHARS_MAX} characters."})
    now = timezone.now()
    with organization_scope([key.organization_id]):
        # The condition decides a race; losing it is an ordinary answer.
        changed = ApiKey.objects.filter(id=key.id, revoked_at=None).update(
            revoked_at=now, revoked_reason=reason
        )
        if not changed:
            return False
        audit_record(
            actor,
            "apikey.revoke",
            subject=key,
            organization_id=key.organization_id,
            detail={"key": key.redacted, "reason": reason},
        )
    key.revoked_at, key.revoked_reason = now, reason
    return True


def playground_token_create(
    *,
    actor: User,
    project: Project,
    models: Iterable[str] | None = None,
    budgets: Iterable[uuid.UUID] = (),
) -> str:
    """A token for ten minutes of the Playground; it spends from `budgets` too, if named."""
    require(actor, Action.PLAYGROUND_USE, project.organization_id)
    named = _own_budgets(project.organization_id, list(budgets))
    allowed = clean_models(models)
    grant = PlayGrant(
        user=actor.id.hex,
        organization=project.organization_id.hex,
        project=project.id.hex,
        models=None if allowed is None else frozenset(allowed),
        budgets=tuple(one.hex for one in named),
        expires_at_s=wall_s() + LIFETIME_S,
    )
    return sign_grant(grant, settings.PLAYGROUND_TOKEN_KEY)


def _own_budgets(organization_id: uuid.UUID, named: list[uuid.UUID]) -> list[uuid.UUID]:
    # A budget has the id of what it limits; nobody may spend from another organization's.
    if len(named) > PLAYGROUND_BUDGETS_MAX:
        raise ValidationError({"budgets": f"At most {PLAYGROUND_BUDGETS_MAX}."})
    with organization_scope([organization_id]):
        own = {
            organization_id,
            *Project.objects.filter(id__in=named).values_list("id", flat=True),
            *ApiKey.objects.filter(id__in=named).values_list("id", flat=True),
        }
    if not own.issuperset(named):
        raise ValidationError({"budgets": "Name only budgets of the project's organization."})
    return named


def clean_name(text: str, *, field_name: str = "name") -> str:
    """A one-line name without surrounding space; raises ValidationError naming the field."""
    text = text.strip()
    if not 1 <= len(text) <= NAME_CHARS_MAX:
        raise ValidationError({field_name: f"Must have 1 to {NAME_CHARS_MAX} characters."})
    if not text.isprintable():
        raise ValidationError({field_name: "Must not contain control characters."})
    return text


def clean_models(models: Iterable[str] | None) -> list[str] | None:
    """An allow-list without repeats; raises ValidationError on one that allows nothing."""
    if models is None:
        return None
    wanted = sorted({clean_name(name, field_name="models") for name in models})
    if not 1 <= len(wanted) <= ALLOWED_MODELS_MAX:
        raise ValidationError(
            {"models": f"Name 1 to {ALLOWED_MODELS_MAX} models, or none for all."}
        )
    return wanted


def clean_tags(tags: Iterable[str]) -> list[str]:
    """Names that routing rules may ask for, without repeats; raises ValidationError."""
    wanted = sorted(set(tags))
    if len(wanted) > TAGS_MAX:
        raise ValidationError({"tags": f"At most {TAGS_MAX} tags."})
    if any(_TAG.fullmatch(tag) is None for tag in wanted):
        message = f"Each tag has up to {TAG_CHARS_MAX} of a-z, 0-9, '.', '_' and '-'."
        raise ValidationError({"tags": message})
    return wanted


def _clean_priority(priority: int) -> int:
    if priority not in PRIORITIES:
        raise ValidationError({"priority": f"Must be one of {', '.join(map(str, PRIORITIES))}."})
    return priority


def _expiry(lifetime_days: int | None) -> datetime | None:
    if lifetime_days is None:
        return None
    if not 1 <= lifetime_days <= KEY_LIFETIME_DAYS_MAX:
        raise ValidationError({"lifetime_days": f"Must be 1 to {KEY_LIFETIME_DAYS_MAX}."})
    return timezone.now() + timedelta(days=lifetime_days)
