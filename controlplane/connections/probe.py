"""One bounded request to a provider's list of models: is the key good, and what may it use?"""

from enum import StrEnum
from http import HTTPStatus
from urllib.parse import urlsplit

import msgspec
from django.db import transaction
from django.utils import timezone

from controlplane.connections.keys import key_opened, keys_active
from controlplane.connections.models import Connection, ConnectionKey, ProviderKind
from controlplane.core.audit.entries import Actor, audit_record
from controlplane.core.outbound import NotReached, outbound
from controlplane.core.permissions import Action
from controlplane.core.seal import BrokenSeal
from controlplane.tenants.access import require

LIST_BYTES_MAX = 2 << 20
LISTED_MAX = 500
NAME_CHARS_MAX = 100
ANTHROPIC_VERSION = "2023-06-01"


class ProbeOutcome(StrEnum):
    """How a provider answered."""

    OK = "ok"
    REFUSED = "refused"
    NOT_FOUND = "not_found"
    LIMITED = "limited"
    FAILED = "failed"
    UNREACHABLE = "unreachable"
    UNREADABLE = "unreadable"
    NO_KEY = "no_key"


class Probe(msgspec.Struct, frozen=True):
    """The outcome, in words what it means, and the models that were named."""

    outcome: ProbeOutcome
    words: str
    models: list[str] = []


class _Named(msgspec.Struct):
    id: str


class _List(msgspec.Struct):
    data: list[_Named]


_STATUSES = {
    401: (ProbeOutcome.REFUSED, "The provider refused the key."),
    403: (ProbeOutcome.REFUSED, "The provider refused the key."),
    404: (ProbeOutcome.NOT_FOUND, "There is no list of models at this URL."),
    429: (ProbeOutcome.LIMITED, "The provider limits requests of this key just now."),
}


def connection_test(*, actor: Actor, connection: Connection) -> Probe:
    """Ask with the newest key, and keep what was answered; nothing is changed at the provider."""
    require(actor, Action.CATALOG_MANAGE)
    key = keys_active(connection).select_related("connection").last()
    # The address that the key was given for, if it has changed meanwhile.
    found = _probe(key.connection if key else connection, key)
    connection.outcome, connection.tested_at = found.outcome, timezone.now()
    if found.outcome == ProbeOutcome.OK:
        connection.listed = found.models
    with transaction.atomic():
        connection.save(update_fields=["outcome", "tested_at", "listed"])
        audit_record(
            actor,
            "connection.test",
            subject=connection,
            detail={"name": connection.name, "outcome": found.outcome.value},
        )
    return found


def _probe(connection: Connection, key: ConnectionKey | None) -> Probe:
    if key is None and connection.kind != ProviderKind.OTHER:
        return Probe(ProbeOutcome.NO_KEY, "Add a key first.")
    try:
        secret = key_opened(key) if key else ""
    except BrokenSeal:
        told = "The key was sealed with another key of this installation: enter it again."
        return Probe(ProbeOutcome.NO_KEY, told)
    url, headers = _request(connection, secret)
    try:
        # Providers of one's own are often inside one's network; only staff say where.
        status, body = outbound("GET", url, headers=headers, private=True, bytes_max=LIST_BYTES_MAX)
    except NotReached as error:
        return Probe(ProbeOutcome.UNREACHABLE, f"Not reached: {error}.")
    if status != HTTPStatus.OK:
        other = (ProbeOutcome.FAILED, f"The provider answered {status}.")
        return Probe(*_STATUSES.get(status, other))
    try:
        named = msgspec.json.decode(body, type=_List).data
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Probe(ProbeOutcome.UNREADABLE, "The answer is no list of models.")
    names = sorted({one.id for one in named if 0 < len(one.id) <= NAME_CHARS_MAX})[:LISTED_MAX]
    return Probe(ProbeOutcome.OK, f"The key works; {len(names)} models are listed.", names)


def _request(connection: Connection, secret: str) -> tuple[str, dict[str, str]]:
    base = connection.url.rstrip("/")
    if connection.kind == ProviderKind.AZURE and connection.api_version:
        url = f"{base}/openai/models?api-version={connection.api_version}"
        return url, {"api-key": secret}
    # As the node completes it.
    base = base if urlsplit(base).path else f"{base}/v1"
    if connection.kind == ProviderKind.ANTHROPIC:
        headers = {"x-api-key": secret, "anthropic-version": ANTHROPIC_VERSION}
        return f"{base}/models?limit={LISTED_MAX}", headers
    if connection.kind == ProviderKind.AZURE:
        return f"{base}/models", {"api-key": secret}
    return f"{base}/models", {"Authorization": f"Bearer {secret}"} if secret else {}
