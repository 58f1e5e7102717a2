"""Making, changing, disabling and removing connections; for staff.

What tokens cost to buy is the purchase price of their model, by which margin is computed: a model
is served by one connection at most.
"""

from urllib.parse import urlsplit

import msgspec
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone

from controlplane.catalog.models import Task
from controlplane.catalog.pools import PoolDraft, pool_set
from controlplane.catalog.selectors import pool_find
from controlplane.connections.keys import key_forget, keys_active
from controlplane.connections.models import Connection, ProviderKind
from controlplane.core.audit.entries import Actor, Facts, audit_record
from controlplane.core.permissions import Action
from controlplane.tenants.access import require

# Where the node that calls providers is, and the models that it serves.
POOL = "providers"
CONNECTIONS_MAX = 100
URL_DEFAULTS = {
    ProviderKind.OPENAI: "https://api.openai.com/v1",
    ProviderKind.ANTHROPIC: "https://api.anthropic.com",
}


class ConnectionDraft(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a connection is. `url` is where its API begins; without a path `/v1` is added. Azure has
    an `api_version`, or a URL that ends in `/openai/v1`. `region` says where requests are answered,
    for people alone.
    """

    name: str
    kind: str
    url: str
    api_version: str = ""
    region: str = ""


def connection_create(*, actor: Actor, draft: ConnectionDraft) -> Connection:
    """A connection without key and models; raises ValidationError by field."""
    require(actor, Action.CATALOG_MANAGE)
    made = Connection(**msgspec.structs.asdict(draft))
    with transaction.atomic():
        if Connection.objects.filter(removed_at=None).count() >= CONNECTIONS_MAX:
            told = f"The limit of {CONNECTIONS_MAX} connections is reached."
            raise ValidationError({"name": told})
        _check(made)
        if pool_find(name=POOL) is None:
            pool_set(actor=actor, draft=PoolDraft(name=POOL, task=Task.GENERATE))
        made.save(force_insert=True)
        _audit(actor, made, "connection.create", msgspec.structs.asdict(draft))
    return made


def connection_change(*, actor: Actor, connection: Connection, draft: ConnectionDraft) -> None:
    """Give it these values. Its keys were given for a place: for another one they are forgotten."""
    require(actor, Action.CATALOG_MANAGE)
    with transaction.atomic():
        now = Connection.objects.select_for_update().get(id=connection.id, removed_at=None)
        place = _place(now)
        before = {name: getattr(now, name) for name in ConnectionDraft.__struct_fields__}
        after = msgspec.structs.asdict(draft)
        for name, value in after.items():
            setattr(now, name, value)
        _check(now)
        now.save()
        if _place(now) != place:
            for key in keys_active(now):
                key_forget(actor, key)
        _audit(actor, now, "connection.change", {"name": now.name}, changed=(before, after))


def connection_enable(*, actor: Actor, connection: Connection, enabled: bool) -> None:
    """Let its models be served, or none of them until it is enabled again."""
    require(actor, Action.CATALOG_MANAGE)
    with transaction.atomic():
        now = Connection.objects.select_for_update().get(id=connection.id, removed_at=None)
        changed: tuple[Facts, Facts] = ({"enabled": now.enabled}, {"enabled": enabled})
        now.enabled = enabled
        now.save(update_fields=["enabled"])
        _audit(actor, now, "connection.enable", {"name": now.name}, changed=changed)


def connection_erase(actor: Actor, connection: Connection) -> None:
    """Forget keys and name, within a transaction, once its models are withdrawn."""
    for key in keys_active(connection):
        key_forget(actor, key)
    connection.enabled, connection.removed_at = False, timezone.now()
    connection.save(update_fields=["enabled", "removed_at"])
    _audit(actor, connection, "connection.remove", {"name": connection.name})


def _place(connection: Connection) -> tuple[str, str, str]:
    """Whom its keys are shown to."""
    parts = urlsplit(connection.url)
    return connection.kind, parts.scheme, parts.netloc.lower()


def _check(connection: Connection) -> None:
    connection.full_clean(exclude=["listed"], validate_constraints=False)
    others = Connection.objects.filter(name=connection.name, removed_at=None)
    if others.exclude(id=connection.id).exists():
        raise ValidationError({"name": f"A connection named {connection.name!r} already exists."})
    _check_url(connection)
    lacks_version = connection.kind == ProviderKind.AZURE and not connection.api_version
    if lacks_version and not urlsplit(connection.url).path.strip("/"):
        told = "Azure requires one, such as 2024-10-21, unless the URL ends in /openai/v1."
        raise ValidationError({"api_version": told})


def _check_url(connection: Connection) -> None:
    url = connection.url
    try:
        parts = urlsplit(url)
        sound = bool(parts.hostname) and parts.port != 0 and url.isascii() and url.isprintable()
    except ValueError:
        sound = False
    if not sound or " " in url or parts.scheme not in ("http", "https"):
        raise ValidationError({"url": "Must be a URL that begins with https:// or http://."})
    if parts.username is not None or parts.query or parts.fragment:
        raise ValidationError({"url": "Must not contain a user name, a query or a fragment."})
    if parts.scheme == "http" and connection.kind != ProviderKind.OTHER:
        raise ValidationError({"url": "https:// only: a key would be sent in the clear."})


def _audit(
    actor: Actor,
    connection: Connection,
    action: str,
    detail: Facts,
    changed: tuple[Facts, Facts] | None = None,
) -> None:
    audit_record(actor, action, subject=connection, detail=detail, changed=changed)
