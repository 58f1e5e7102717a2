"""Keys of connections: sealed for their row, shown by their end alone, rotated with overlap.

Under another `CONNECTION_KEY` than those that settings name none can be opened.
"""

import uuid

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from controlplane.connections.models import Connection, ConnectionKey
from controlplane.core.audit.entries import Actor, audit_record
from controlplane.core.permissions import Action
from controlplane.core.seal import sealed, unsealed
from controlplane.tenants.access import require

# The one in use, and the one that takes its place.
KEYS_ACTIVE_MAX = 2
SECRET_CHARS = (8, 500)
SHOWN_CHARS = 4


def key_add(*, actor: Actor, connection: Connection, secret: str) -> ConnectionKey:
    """One more key, from now on beside the one before; raises ValidationError for `secret`."""
    require(actor, Action.CATALOG_MANAGE)
    secret = secret.strip()
    least, most = SECRET_CHARS
    if not least <= len(secret) <= most or not secret.isascii() or not secret.isprintable():
        raise ValidationError({"secret": f"Must be {least} to {most} printable characters."})
    with transaction.atomic():
        Connection.objects.select_for_update().get(id=connection.id, removed_at=None)
        if keys_active(connection).count() >= KEYS_ACTIVE_MAX:
            told = f"{KEYS_ACTIVE_MAX} keys are active: retire one of them first."
            raise ValidationError({"secret": told})
        made = ConnectionKey(connection=connection, shown=secret[-SHOWN_CHARS:])
        made.sealed = sealed(settings.CONNECTION_KEY, secret.encode(), _place(made))
        made.save(force_insert=True)
        _audit(actor, made, "connection_key.add")
    return made


def key_retire(*, actor: Actor, connection: Connection, key_id: uuid.UUID) -> ConnectionKey:
    """Forget a key; raises DoesNotExist where it is not an active one of this connection."""
    require(actor, Action.CATALOG_MANAGE)
    with transaction.atomic():
        key = keys_active(connection).select_for_update(of=("self",)).get(id=key_id)
        key_forget(actor, key)
    return key


def key_forget(actor: Actor, key: ConnectionKey) -> None:
    """The same within a transaction, once rights are known."""
    key.sealed, key.retired_at = None, timezone.now()
    key.save(update_fields=["sealed", "retired_at"])
    _audit(actor, key, "connection_key.retire")


def keys_active(connection: Connection) -> QuerySet[ConnectionKey]:
    return ConnectionKey.objects.filter(connection=connection, retired_at=None).order_by("id")


def key_opened(key: ConnectionKey) -> str:
    """The secret again; raises BrokenSeal."""
    assert key.sealed is not None
    before = settings.CONNECTION_KEYS_BEFORE
    return unsealed(settings.CONNECTION_KEY, bytes(key.sealed), _place(key), before).decode()


def keys_reseal() -> int:
    """Seal all active keys under the present `CONNECTION_KEY` alone; how many there are."""
    with transaction.atomic():
        found = list(ConnectionKey.objects.select_for_update().filter(retired_at=None))
        for key in found:
            key.sealed = sealed(settings.CONNECTION_KEY, key_opened(key).encode(), _place(key))
            key.save(update_fields=["sealed"])
    return len(found)


def _place(key: ConnectionKey) -> bytes:
    return f"connection_keys:{key.connection_id}:{key.id}".encode()


def _audit(actor: Actor, key: ConnectionKey, action: str) -> None:
    facts = {"connection": key.connection.name, "key": f"…{key.shown}"}
    audit_record(actor, action, subject=key, detail={**facts})
