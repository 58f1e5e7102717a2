"""Services of admin keys: made by a person who may do all that the key may, shown once, ended."""

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.conf import settings
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import connection, transaction
from django.db.models import Q
from django.utils import timezone

from controlplane.core.answers import FIRST_PAGE, Page, PageAsk, page_read
from controlplane.core.audit.entries import Actor, Facts, audit_record
from controlplane.core.jobs.once import once
from controlplane.core.permissions import Action, organization_scope
from controlplane.kernel.keys.format import (
    ADMIN_PREFIX,
    is_digest,
    new_credential,
    parse_credential,
    stored,
)
from controlplane.tenants.access import allows, permitted, require
from controlplane.tenants.adminkeys.models import KEY_ACTIONS, ONE_KEY_OF_A_FORM
from controlplane.tenants.keys import key_expiry
from controlplane.tenants.models import AdminKey, User
from controlplane.tenants.room import organization_lock
from controlplane.tenants.services import clean_name

LIFETIME_DAYS_DEFAULT = 90
LIFETIME_DAYS_MAX = 365
# Living keys of an organization; each is a door.
KEYS_MAX = 50
# A busy key writes its last use once in a while only.
USED_EVERY = timedelta(minutes=1)


@dataclass(frozen=True)
class AdminKeyDraft:
    """What a new key is for; `actions` are names of the permission matrix."""

    label: str
    actions: Iterable[str]
    lifetime_days: int | None = LIFETIME_DAYS_DEFAULT
    form: uuid.UUID | None = None


@dataclass(frozen=True)
class CreatedAdminKey:
    """A new key and its secret, which is known here and never again."""

    key: AdminKey
    secret: str = field(repr=False)


def adminkey_create(
    *, actor: Actor, organization_id: uuid.UUID, draft: AdminKeyDraft
) -> CreatedAdminKey:
    """A new key for some of what its maker may do; `lifetime_days` None never expires.

    It may always see which organization it is of. Raises AlreadyCreated for a form that has
    made one.
    """
    require(actor, Action.ADMIN_KEY_MANAGE, organization_id)
    actions = _clean_actions(actor, organization_id, draft.actions)
    credential, now = new_credential(ADMIN_PREFIX), timezone.now()
    key = AdminKey(
        organization_id=organization_id,
        **stored(credential, settings.KEY_PEPPER),
        label=clean_name(draft.label, field_name="label"),
        actions=actions,
        created_by=actor if isinstance(actor, User) else None,
        expires_at=key_expiry(draft.lifetime_days, LIFETIME_DAYS_MAX),
        form=draft.form,
    )
    with once(ONE_KEY_OF_A_FORM), organization_scope([organization_id]):
        # The organization's row is the lock: two makers cannot pass the bound together.
        organization_lock(organization_id)
        living = Q(revoked_at=None) & (Q(expires_at=None) | Q(expires_at__gt=now))
        if AdminKey.objects.filter(living, organization_id=organization_id).count() >= KEYS_MAX:
            raise ValidationError(
                {"label": f"The limit of {KEYS_MAX} keys is reached; revoke one."}
            )
        key.save(force_insert=True)
        facts: Facts = {"key": key.redacted, "label": key.label, "actions": actions}
        facts["lifetime_days"] = draft.lifetime_days
        audit_record(actor, "adminkey.create", subject=key, detail=facts)
    return CreatedAdminKey(key, credential.text)


def adminkey_revoke(*, actor: Actor, key: AdminKey) -> bool:
    """End a key at once; False where it was ended before."""
    now = timezone.now()
    with permitted(actor, Action.ADMIN_KEY_MANAGE, key.organization_id):
        if not AdminKey.objects.filter(id=key.id, revoked_at=None).update(revoked_at=now):
            return False
        audit_record(
            actor, "adminkey.revoke", subject=key, detail={"key": key.redacted, "label": key.label}
        )
    key.revoked_at = now
    return True


def adminkey_list(
    *, actor: Actor, organization_id: uuid.UUID, ask: PageAsk = FIRST_PAGE
) -> Page[AdminKey]:
    with permitted(actor, Action.ADMIN_KEY_MANAGE, organization_id):
        rows = AdminKey.objects.filter(organization_id=organization_id)
        return page_read(rows.select_related("created_by"), ask)


def adminkey_get(*, actor: Actor, organization_id: uuid.UUID, key_id: uuid.UUID) -> AdminKey:
    """One key by its row id; raises DoesNotExist for those of strangers."""
    with permitted(actor, Action.ADMIN_KEY_MANAGE, organization_id):
        rows = AdminKey.objects.select_related("created_by")
        return rows.get(id=key_id, organization_id=organization_id)


def adminkey_open(*, text: str) -> AdminKey | None:
    """The key that a caller presents, if it is one that lives; its use is noted once a minute."""
    credential = parse_credential(text, ADMIN_PREFIX)
    if credential is None:
        return None
    now = timezone.now()
    with transaction.atomic():
        # No one's organization is known yet: the policy shows the row of this one id.
        with connection.cursor() as cursor:
            cursor.execute("SELECT set_config('app.admin_key', %s, true)", [credential.key_id])
        rows = AdminKey.objects.select_related("created_by")
        key = rows.filter(key_id=credential.key_id).first()
        peppers = (settings.KEY_PEPPER, *settings.KEY_PEPPERS_BEFORE)
        if key is None or not is_digest(bytes(key.digest), credential.text, peppers):
            return None
        if key.state(now) != "active":
            return None
        _note_use(key, now)
    return key


def _note_use(key: AdminKey, now: datetime) -> None:
    if key.last_used_at is not None and key.last_used_at > now - USED_EVERY:
        return
    with organization_scope([key.organization_id]):
        AdminKey.objects.filter(id=key.id).update(last_used_at=now)
    key.last_used_at = now


def _clean_actions(actor: Actor, organization_id: uuid.UUID, names: Iterable[str]) -> list[str]:
    wanted = sorted({*names, Action.ORGANIZATION_VIEW.value})
    for name in wanted:
        if name not in KEY_ACTIONS:
            raise ValidationError({"actions": f"{name!r} is not a valid scope."})
        if not allows(actor, Action(name), organization_id):
            raise PermissionDenied(name)
    return wanted
