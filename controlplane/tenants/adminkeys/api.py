"""Admin keys under /api/organizations/<id>/admin-keys: made and ended by people."""

import uuid
from datetime import datetime
from typing import Any, TypedDict

import msgspec
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.core.answers import Changed, answer_of
from controlplane.core.api.schema import CREATED, operation
from controlplane.core.api.views import OF_ORGANIZATION, ApiView
from controlplane.core.permissions import Action
from controlplane.kernel.ids import AdminKeyId, public_id
from controlplane.tenants.access import require
from controlplane.tenants.adminkeys import services as adminkeys
from controlplane.tenants.models import AdminKey

EXAMPLE = {"label": "nightly report", "actions": ["ledger.view"], "lifetime_days": 30}


class AdminKeyBody(msgspec.Struct, forbid_unknown_fields=True):
    """A new key; `actions` are names of the permission matrix, null `lifetime_days` never ends."""

    label: str
    actions: list[str]
    lifetime_days: int | None = adminkeys.LIFETIME_DAYS_DEFAULT


class AdminKeyJson(TypedDict):
    """A key without its secret; `state` is active, expired or revoked."""

    id: AdminKeyId
    object: str
    label: str
    redacted: str
    actions: list[str]
    state: str
    created_by: str
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None


class NewAdminKeyJson(AdminKeyJson):
    """A key with its secret, which only this answer has."""

    secret: str


class AdminKeysView(ApiView, under=f"{OF_ORGANIZATION}/admin-keys"):
    """What operations on admin keys share: rights come before bodies."""

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        require(self.actor(), Action.ADMIN_KEY_MANAGE, kwargs["organization_id"])


class AdminKeys(AdminKeysView, at=""):
    @operation(list_of=AdminKeyJson)
    def get(self) -> Response:
        """List admin keys without secrets, newest first."""
        found = adminkeys.adminkey_list(**self.whose(), ask=self.page_ask("adminkey"))
        return self.page(found, adminkey_json)

    @operation(body=AdminKeyBody, answer={CREATED: NewAdminKeyJson}, example=EXAMPLE, step_up=True)
    def post(self, wanted: AdminKeyBody) -> Response:
        """Create an admin key, within the permissions of its creator; needs confirmation."""
        draft = adminkeys.AdminKeyDraft(wanted.label, wanted.actions, wanted.lifetime_days)
        made = adminkeys.adminkey_create(**self.whose(), draft=draft)
        body: NewAdminKeyJson = {**adminkey_json(made.key), "secret": made.secret}
        return Response(body, status=CREATED, headers={"Cache-Control": "no-store"})


class OneAdminKey(AdminKeysView, at="/<adminkey:key_id>"):
    @operation(answer=AdminKeyJson)
    def get(self, organization_id: uuid.UUID, key_id: uuid.UUID) -> AdminKeyJson:
        """Get an admin key without its secret."""
        return adminkey_json(self._found(organization_id, key_id))

    @operation(answer=Changed)
    def delete(self, organization_id: uuid.UUID, key_id: uuid.UUID) -> Changed:
        """Revoke an admin key; it stays in the list."""
        key = self._found(organization_id, key_id)
        changed = adminkeys.adminkey_revoke(actor=self.actor(), key=key)
        return {"id": public_id("adminkey", key.id), "changed": changed}

    def _found(self, organization_id: uuid.UUID, key_id: uuid.UUID) -> AdminKey:
        return adminkeys.adminkey_get(**self.whose(), key_id=key_id)


def adminkey_json(key: AdminKey) -> AdminKeyJson:
    return answer_of(
        AdminKeyJson,
        key,
        object="admin_key",
        state=key.state(timezone.now()),
        created_by=key.created_by.email if key.created_by else "operator",
    )
