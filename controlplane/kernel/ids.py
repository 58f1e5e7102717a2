"""Ids: UUIDv7 (RFC 9562), which sort by time, and the form in which people and programs see them.

Seen is a prefix that names the kind, `_` and 32 hex digits; the database keeps UUIDs.
"""

import os
import re
import time
from typing import Annotated, Any, get_args
from uuid import UUID

from msgspec import Meta

ID_BYTES = 16
REQUEST = "req"
# What answers put before the digits of a request's id.
_ANSWERS = ("chatcmpl", "cmpl", "msg", "resp")
_HEX = "[0-9a-fA-F]"
DIGITS = f"{_HEX}{{8}}(?:-?{_HEX}{{4}}){{3}}-?{_HEX}{{12}}"
_TEXT = re.compile(f"(?:([a-z]+)[_-])?({DIGITS})")
_VERSION_7 = 0x7000
_VARIANT = 0x8000_0000_0000_0000
_RANDOM_BYTES = 10
_DRAWN_AT_ONCE = 256
# Drawn and not used yet: asking the kernel for each id costs more than all the rest of it. A list's
# `pop` is atomic, so that no two threads get the same, and a child process draws its own.
_drawn: list[bytes] = []
os.register_at_fork(after_in_child=_drawn.clear)


def new_request_id() -> bytes:
    """16 bytes: 48 bits of Unix milliseconds, then 74 random bits around version and variant."""
    random = int.from_bytes(_draw())
    rand_a = _VERSION_7 | (random >> 68)
    rand_b = _VARIANT | (random & 0x3FFF_FFFF_FFFF_FFFF)
    value = ((time.time_ns() // 1_000_000) << 80) | (rand_a << 64) | rand_b
    return value.to_bytes(ID_BYTES)


def _draw() -> bytes:
    """`_RANDOM_BYTES` that nobody else gets, from the system's generator."""
    try:
        return _drawn.pop()
    except IndexError:
        data = os.urandom(_RANDOM_BYTES * _DRAWN_AT_ONCE)
        first, *rest = (data[at : at + _RANDOM_BYTES] for at in range(0, len(data), _RANDOM_BYTES))
        _drawn.extend(rest)
        return first


def id_time_ms(request: bytes) -> int:
    """Unix milliseconds at which an id was made."""
    return int.from_bytes(request[:6], "big")


def kind(prefix: str) -> Meta:
    """What makes a text, or a UUID in a body, the id of a kind."""
    pattern = f"^{prefix}_[0-9a-f]{{32}}$"
    return Meta(extra={"prefix": prefix}, extra_json_schema={"format": "id", "pattern": pattern})


AnyId = Annotated[str, kind("[a-z]+")]
OrganizationId = Annotated[str, kind("org")]
ProjectId = Annotated[str, kind("proj")]
ApiKeyId = Annotated[str, kind("key")]
AdminKeyId = Annotated[str, kind("adminkey")]
UserId = Annotated[str, kind("user")]
RequestId = Annotated[str, kind(REQUEST)]
InvoiceId = Annotated[str, kind("inv")]
JournalEntryId = Annotated[str, kind("entry")]
WalletGrantId = Annotated[str, kind("grant")]
PaymentId = Annotated[str, kind("payment")]
PaymentOrderId = Annotated[str, kind("order")]
ReconciliationId = Annotated[str, kind("reconciliation")]
ExportId = Annotated[str, kind("export")]
BatchId = Annotated[str, kind("batch")]
PriceVersionId = Annotated[str, kind("price")]
PurchasePriceId = Annotated[str, kind("purchase")]
ObjectiveId = Annotated[str, kind("objective")]
AlertId = Annotated[str, kind("alert")]
DeliveryId = Annotated[str, kind("delivery")]
ChannelId = Annotated[str, kind("channel")]
InvitationId = Annotated[str, kind("invite")]
UserSessionId = Annotated[str, kind("session")]
SecondFactorId = Annotated[str, kind("factor")]
NodeId = Annotated[str, kind("node")]
EnrolmentTokenId = Annotated[str, kind("token")]
ModelDigestId = Annotated[str, kind("digest")]
ConnectionId = Annotated[str, kind("connection")]
ConnectionKeyId = Annotated[str, kind("connectionkey")]
HostId = Annotated[str, kind("host")]
DeploymentId = Annotated[str, kind("deployment")]
DeploymentReplicaId = Annotated[str, kind("replica")]
WorksheetRevisionId = Annotated[str, kind("worksheet")]
AuditEntryId = Annotated[str, kind("audit")]


def prefix_of(declared: Any) -> str:
    """The prefix of a type above, alone or with None; empty for any other type."""
    for each in (declared, *get_args(declared)):
        for meta in getattr(each, "__metadata__", ()):
            if isinstance(meta, Meta) and meta.extra:
                return str(meta.extra["prefix"])
    return ""


PREFIXES = {
    name.removesuffix("Id").lower(): prefix_of(declared)
    for name, declared in list(globals().items())
    if name.endswith("Id") and name != "AnyId"
}


def public_id(prefix: str, of: UUID | str) -> str:
    """The id as it is seen; of a UUID, or of its 32 hex digits."""
    return f"{prefix}_{of.hex if isinstance(of, UUID) else of}"


def public_request(request: bytes) -> str:
    return f"{REQUEST}_{request.hex()}"


def id_of_type(type_name: str, of: UUID) -> str:
    """The id of what is known by the name of its class or scope, such as an audit's subject."""
    return public_id(PREFIXES.get(type_name.lower(), type_name.lower()), of)


def uuid_of(text: str, prefix: str = "") -> UUID:
    """An id as it is seen, as hex digits, or as SQL writes it; without `prefix` one of any kind.

    Raises ValueError, also for an id of another kind.
    """
    found = _TEXT.fullmatch(text)
    known = (None, prefix, *(_ANSWERS if prefix == REQUEST else ()))
    if found is None or (prefix and found[1] not in known):
        raise ValueError(f"Must be an id: {prefix or 'a prefix'}_ and 32 hex digits.")
    return UUID(found[2])


def uuid_asked(text: str, prefix: str, otherwise: Exception) -> UUID:
    """The same; raises `otherwise`."""
    try:
        return uuid_of(text, prefix)
    except ValueError:
        raise otherwise from None
