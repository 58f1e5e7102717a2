"""Making, rotating and revoking API keys, each with its audit row; what a key may be used for,
checked, and whether it is within what another may.
"""

import re
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.conf import settings
from django.core.exceptions import ValidationError
from django.utils import timezone

from controlplane.core.answers import moment_text
from controlplane.core.audit.entries import Actor, Facts, audit_record
from controlplane.core.errors.body import Conflict
from controlplane.core.jobs.once import once
from controlplane.core.permissions import Action, organization_scope
from controlplane.kernel.ids import public_id
from controlplane.kernel.keys import scopes
from controlplane.kernel.keys.format import new_credential, stored
from controlplane.kernel.rules import PRIORITIES, PRIORITY_NORMAL
from controlplane.tenants.access import require
from controlplane.tenants.models import (
    NETWORKS_MAX,
    ONE_KEY_OF_A_FORM,
    TAG_CHARS_MAX,
    TAGS_MAX,
    ApiKey,
    Project,
    User,
)
from controlplane.tenants.room import key_room
from controlplane.tenants.services import REASON_CHARS_MAX, clean_models, clean_name

_TAG = re.compile(rf"[a-z0-9][a-z0-9._-]{{0,{TAG_CHARS_MAX - 1}}}")
KEY_LIFETIME_DAYS_DEFAULT = 90
KEY_LIFETIME_DAYS_MAX = 3_650
A_DAY_S = 24 * 60 * 60
OVERLAP_S_DEFAULT = A_DAY_S
OVERLAP_S_MAX = 7 * A_DAY_S


@dataclass(frozen=True)
class KeyTerms:
    """What a key may ask for, from where, and how its requests are routed and queued.

    None as `models` or `endpoints` allows every one, no `networks` callers from anywhere. A
    `read_only` key may use only what runs no model. A `priority` above normal takes the right to
    set limits. Nothing of it may be wider than the key `within` which it is made, where one is.
    """

    models: Iterable[str] | None = None
    endpoints: Iterable[str] | None = None
    read_only: bool = False
    networks: Iterable[str] = ()
    tags: Iterable[str] = ()
    priority: int = PRIORITY_NORMAL
    within: ApiKey | None = None


EVERY_MODEL = KeyTerms()


def clean_terms(terms: KeyTerms) -> KeyTerms:
    """The same in the form that is stored; raises ValidationError naming the field."""
    return KeyTerms(
        models=clean_models(terms.models),
        endpoints=clean_endpoints(terms.endpoints),
        read_only=terms.read_only,
        networks=clean_networks(terms.networks),
        tags=clean_tags(terms.tags),
        priority=_clean_priority(terms.priority),
        within=terms.within,
    )


def terms_of(key: ApiKey) -> KeyTerms:
    return KeyTerms(
        models=key.allowed_models,
        endpoints=key.allowed_endpoints,
        read_only=key.read_only,
        networks=key.networks,
        tags=key.tags,
        priority=key.priority,
    )


def require_within(terms: KeyTerms, bounds: KeyTerms) -> None:
    """Raises ValidationError naming what `terms` would allow and `bounds` does not.

    Both are clean. Tags are names that rules look for and may lead anywhere, so a narrower key has
    those of the wider one and no other.
    """
    wider = {
        "models": not _subset(terms.models, bounds.models),
        "endpoints": not _subset(endpoints_of(terms), endpoints_of(bounds)),
        "networks": not _networks_within(list(terms.networks), list(bounds.networks)),
        "tags": set(terms.tags) != set(bounds.tags),
        "priority": terms.priority > bounds.priority,
    }
    message = "Must not allow more than the key that it is created from."
    if any(wider.values()):
        raise ValidationError({name: message for name, is_so in wider.items() if is_so})


def endpoints_of(terms: KeyTerms) -> frozenset[str]:
    """What a key with these terms may really use."""
    named = frozenset(scopes.ENDPOINTS if terms.endpoints is None else terms.endpoints)
    return named & frozenset(scopes.READ_ENDPOINTS) if terms.read_only else named


def clean_endpoints(endpoints: Iterable[str] | None) -> list[str] | None:
    """In the order of the kernel's list, without repeats; raises ValidationError."""
    if endpoints is None:
        return None
    wanted = set(endpoints)
    if not wanted or not wanted <= set(scopes.ENDPOINTS):
        raise ValidationError(
            {"endpoints": f"Must be some of {', '.join(scopes.ENDPOINTS)}, or empty."}
        )
    return [name for name in scopes.ENDPOINTS if name in wanted]


def clean_networks(networks: Iterable[str]) -> list[str]:
    """In their usual spelling, without repeats; raises ValidationError with what is wrong."""
    try:
        wanted = list(dict.fromkeys(str(scopes.parse_network(text)) for text in networks))
    except ValueError as error:
        raise ValidationError({"networks": f"{error}."}) from error
    if len(wanted) > NETWORKS_MAX:
        raise ValidationError({"networks": f"At most {NETWORKS_MAX} networks."})
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


def _subset(inner: Iterable[str] | None, outer: Iterable[str] | None) -> bool:
    if outer is None:
        return True
    return inner is not None and set(inner) <= set(outer)


def _networks_within(inner: list[str], outer: list[str]) -> bool:
    if not outer:
        return True
    return bool(inner) and all(scopes.network_covered(one, outer) for one in inner)


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
    terms = clean_terms(terms)
    expires_at = key_expiry(lifetime_days, KEY_LIFETIME_DAYS_MAX)
    if terms.within is not None:
        _require_narrower(project, terms, expires_at, terms.within)
    key, secret = _new_key(project, clean_name(label, field_name="label"), terms, expires_at)
    key.created_by = actor if isinstance(actor, User) else None
    if terms.within is not None:
        # However often it is rotated.
        key.ends_by = _earlier(terms.within.expires_at, terms.within.ends_by)
    key.form = form
    with once(ONE_KEY_OF_A_FORM), organization_scope([project.organization_id]):
        key_room(project)
        key.save(force_insert=True)
        facts = _facts(key) | {"within": terms.within.redacted if terms.within else None}
        audit_record(actor, "apikey.create", subject=key, detail=facts)
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
        more: Facts = {"replaces": old.redacted, "old_ends_at": moment_text(old.expires_at)}
        audit_record(actor, "apikey.rotate", subject=new, detail=_facts(new) | more)
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
            actor, "apikey.revoke", subject=key, detail={"key": key.redacted, "reason": reason}
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
        **stored(credential, settings.KEY_PEPPER),
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


def _earlier(one: datetime | None, other: datetime | None) -> datetime | None:
    return min((at for at in (one, other) if at is not None), default=None)


def key_expiry(lifetime_days: int | None, days_max: int) -> datetime | None:
    """When a key made now ends; None never. Raises ValidationError (`lifetime_days`)."""
    if lifetime_days is None:
        return None
    if not 1 <= lifetime_days <= days_max:
        raise ValidationError({"lifetime_days": f"Must be 1 to {days_max}."})
    return timezone.now() + timedelta(days=lifetime_days)
