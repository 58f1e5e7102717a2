"""Making, rotating and revoking API keys; each with its audit row."""

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.conf import settings
from django.core.exceptions import ValidationError
from django.utils import timezone

from controlplane.core.answers import moment_text
from controlplane.core.audit.entries import Actor, Facts, audit_record
from controlplane.core.errors.conflict import Conflict
from controlplane.core.jobs.once import once
from controlplane.core.permissions import Action
from controlplane.core.scope import organization_scope
from controlplane.kernel.ids import public_id
from controlplane.kernel.keys.format import digest, new_credential, redacted
from controlplane.kernel.rules import PRIORITY_NORMAL
from controlplane.tenants.access import require
from controlplane.tenants.key_terms import (
    EVERY_MODEL,
    KeyTerms,
    clean_terms,
    require_within,
    terms_of,
)
from controlplane.tenants.models import ONE_KEY_OF_A_FORM, ApiKey, Project, User
from controlplane.tenants.room import key_room
from controlplane.tenants.services import REASON_CHARS_MAX, clean_name

KEY_LIFETIME_DAYS_DEFAULT = 90
KEY_LIFETIME_DAYS_MAX = 3_650
A_DAY_S = 24 * 60 * 60
OVERLAP_S_DEFAULT = A_DAY_S
OVERLAP_S_MAX = 7 * A_DAY_S


@dataclass(frozen=True)
class CreatedKey:
    """A new key and its secret, which is known here and never again."""

    key: ApiKey
    secret: str = field(repr=False)


def apikey_create(
    *,
    actor: Actor,
    project: Project,
    label: str,
    terms: KeyTerms = EVERY_MODEL,
    lifetime_days: int | None = KEY_LIFETIME_DAYS_DEFAULT,
    form: uuid.UUID | None = None,
) -> CreatedKey:
    """A new key, nowhere wider than its creator may make one or than the key it is made within.

    `lifetime_days` None never expires. Raises AlreadyCreated for a `form` that has made one: the
    database decides, so that of two clicks at once exactly one makes a key.
    """
    require(actor, Action.KEY_CREATE, project.organization_id)
    if terms.priority > PRIORITY_NORMAL:
        require(actor, Action.LIMIT_SET, project.organization_id)
    terms, expires_at = clean_terms(terms), _expiry(lifetime_days)
    if terms.within is not None:
        _require_narrower(project, terms, expires_at, terms.within)
    key, secret = _new_key(project, clean_name(label, field_name="label"), terms, expires_at)
    key.created_by = actor if isinstance(actor, User) else None
    key.ends_by = None if terms.within is None else _end_of(terms.within)
    key.form = form
    with once(ONE_KEY_OF_A_FORM), organization_scope([project.organization_id]):
        key_room(project)
        key.save(force_insert=True)
        audit_record(
            actor,
            "apikey.create",
            subject=key,
            organization_id=project.organization_id,
            detail=_facts(key) | {"within": terms.within.redacted if terms.within else None},
        )
    return CreatedKey(key, secret)


def apikey_rotate(*, actor: Actor, key: ApiKey, overlap_s: int = OVERLAP_S_DEFAULT) -> CreatedKey:
    """A key on the same terms, limits and budget; the old one ends after the overlap.

    Both work until then. The new one lives as long as the old one was given, but no longer than
    the key within which their line was made. Raises Conflict for one that is revoked, expired or
    was rotated before.
    """
    require(actor, Action.KEY_CREATE, key.organization_id)
    require(actor, Action.KEY_REVOKE, key.organization_id)
    if key.priority > PRIORITY_NORMAL:
        # Whoever rotates a key learns its secret, so they must be one who could have made it.
        require(actor, Action.LIMIT_SET, key.organization_id)
    if not 0 <= overlap_s <= OVERLAP_S_MAX:
        raise ValidationError({"overlap_s": f"Must be 0 to {OVERLAP_S_MAX}."})
    now = timezone.now()
    ends_at = now + timedelta(seconds=overlap_s)
    with organization_scope([key.organization_id]):
        # Locked: of two rotations at once the second finds the first one's key.
        old = ApiKey.objects.select_for_update().select_related("project").get(id=key.id)
        if old.state(now) != "active" or ApiKey.objects.filter(replaces=old).exists():
            raise Conflict({"key": "Only an active key can be rotated, and only once."})
        key_room(old.project, besides=None if overlap_s else old, field="overlap_s")
        lifetime = None if old.expires_at is None else old.expires_at - old.created_at
        expires_at = _earlier(None if lifetime is None else now + lifetime, old.ends_by)
        new, secret = _new_key(old.project, old.label, terms_of(old), expires_at)
        new.created_by = actor if isinstance(actor, User) else None
        new.replaces, new.limits_of_id, new.ends_by = old, old.limits_id, old.ends_by
        new.save(force_insert=True)
        old.expires_at = ends_at if old.expires_at is None else min(ends_at, old.expires_at)
        old.save(update_fields=["expires_at"])
        audit_record(
            actor,
            "apikey.rotate",
            subject=new,
            organization_id=key.organization_id,
            detail=_facts(new)
            | {"replaces": old.redacted, "old_ends_at": moment_text(old.expires_at)},
        )
    key.expires_at = old.expires_at
    return CreatedKey(new, secret)


def apikey_revoke(*, actor: Actor, key: ApiKey, reason: str = "") -> bool:
    """Revoke at once; gateways follow within two seconds. False where it was revoked before."""
    require(actor, Action.KEY_REVOKE, key.organization_id)
    if len(reason) > REASON_CHARS_MAX:
        raise ValidationError({"reason": f"At most {REASON_CHARS_MAX} characters."})
    if "\0" in reason:
        raise ValidationError({"reason": "Must not contain control characters."})
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


def _new_key(
    project: Project, label: str, terms: KeyTerms, expires_at: datetime | None
) -> tuple[ApiKey, str]:
    credential = new_credential()
    key = ApiKey(
        organization_id=project.organization_id,
        project=project,
        key_id=credential.key_id,
        digest=digest(credential.text, settings.KEY_PEPPER),
        redacted=redacted(credential),
        label=label,
        allowed_models=_listed(terms.models),
        allowed_endpoints=_listed(terms.endpoints),
        read_only=terms.read_only,
        networks=list(terms.networks),
        tags=list(terms.tags),
        priority=terms.priority,
        expires_at=expires_at,
    )
    return key, credential.text


def _listed(names: Iterable[str] | None) -> list[str] | None:
    return None if names is None else list(names)


def _facts(key: ApiKey) -> Facts:
    return {
        "key": key.redacted,
        "label": key.label,
        "project": public_id("proj", key.project_id),
        "models": key.allowed_models,
        "endpoints": key.allowed_endpoints,
        "read_only": key.read_only,
        "networks": key.networks,
        "expires_at": moment_text(key.expires_at) if key.expires_at else None,
        "tags": key.tags,
        "priority": key.priority,
    }


def _require_narrower(
    project: Project, terms: KeyTerms, expires_at: datetime | None, within: ApiKey
) -> None:
    if within.project_id != project.id:
        raise ValidationError({"within": "The source key belongs to another project."})
    if within.state(timezone.now()) != "active":
        raise ValidationError({"within": "The source key is no longer active."})
    require_within(terms, terms_of(within))
    if within.expires_at is not None and (expires_at is None or expires_at > within.expires_at):
        raise ValidationError({"lifetime_days": "Must not expire after the source key."})


def _end_of(within: ApiKey) -> datetime | None:
    """When a key that is made within another ends at the latest, however often it is rotated."""
    return _earlier(within.expires_at, within.ends_by)


def _earlier(one: datetime | None, other: datetime | None) -> datetime | None:
    return min((at for at in (one, other) if at is not None), default=None)


def _expiry(lifetime_days: int | None) -> datetime | None:
    if lifetime_days is None:
        return None
    if not 1 <= lifetime_days <= KEY_LIFETIME_DAYS_MAX:
        raise ValidationError({"lifetime_days": f"Must be 1 to {KEY_LIFETIME_DAYS_MAX}."})
    return timezone.now() + timedelta(days=lifetime_days)
