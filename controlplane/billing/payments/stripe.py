"""Stripe's way of telling us of payments: the signature over the raw body, and what we read of it.

Nothing here touches the database. Cards and their holders are in the events too: they are never
read, kept or logged.
"""

import hmac
from collections.abc import Sequence
from hashlib import sha256
from typing import NamedTuple

import msgspec

TOLERANCE_S = 300
EVENT_BYTES_MAX = 256 * 1024
HEADER_CHARS_MAX = 2_048
SIGNATURES_MAX = 16
TIME_DIGITS_MAX = 12
REFERENCE_KEY = "sluice_order"
# A session that is complete may still wait for a slow bank; then the second of these comes later.
SESSIONS = ("checkout.session.completed", "checkout.session.async_payment_succeeded")
INTENT = "payment_intent.succeeded"


class BadSignature(Exception):
    """The body was not signed with a secret of ours just now."""


class BadEvent(Exception):
    """A signed body that cannot be read as an event."""


class Paid(NamedTuple):
    """What a provider says was paid: its ids, our order's reference, and how much."""

    event: str
    reference: str
    order: str
    amount_cents: int
    currency: str


class _Object(msgspec.Struct):
    """What sessions and payment intents have that we look at."""

    id: str
    metadata: dict[str, str] | None = None
    currency: str | None = None
    client_reference_id: str | None = None
    payment_intent: str | None = None
    payment_status: str | None = None
    amount_total: int | None = None
    amount_received: int | None = None


class _Data(msgspec.Struct):
    """The thing that an event is about, still as JSON."""

    object: msgspec.Raw


class _Event(msgspec.Struct):
    """An event's envelope."""

    id: str
    type: str
    data: _Data


def signature_check(header: str, body: bytes, secrets: Sequence[str], now_s: float) -> None:
    """Return if one of the `v1` signatures is over this body by one of the secrets, now.

    Every signature is compared with every secret, so time tells nothing of which was near.
    """
    time_text, signatures = _header_parts(header)
    if abs(now_s - int(time_text)) > TOLERANCE_S:
        raise BadSignature(f"signature timestamp is off by more than {TOLERANCE_S} s")
    signed = time_text.encode() + b"." + body
    known = [hmac.new(secret.encode(), signed, sha256).hexdigest() for secret in secrets]
    found = [
        hmac.compare_digest(one.encode(), other.encode()) for one in signatures for other in known
    ]
    if not any(found):
        raise BadSignature("no valid signature")


def _header_parts(header: str) -> tuple[str, list[str]]:
    if len(header) > HEADER_CHARS_MAX:
        raise BadSignature("the header is too long")
    parts = [part.strip().partition("=") for part in header.split(",")]
    times = [value for name, _, value in parts if name == "t"]
    signatures = [value for name, _, value in parts if name == "v1"]
    if len(times) != 1 or not times[0].isascii() or not times[0].isdecimal():
        raise BadSignature("missing timestamp")
    if len(times[0]) > TIME_DIGITS_MAX:
        raise BadSignature("missing timestamp")
    if not 1 <= len(signatures) <= SIGNATURES_MAX:
        raise BadSignature(f"not 1 to {SIGNATURES_MAX} signatures")
    return times[0], signatures


def event_read(body: bytes) -> Paid | None:
    """What was paid; None for events of other kinds, and for sessions that are not paid yet."""
    try:
        event = msgspec.json.decode(body, type=_Event)
        if event.type not in (*SESSIONS, INTENT):
            return None
        subject = msgspec.json.decode(event.data.object, type=_Object)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadEvent(str(error)) from error
    if event.type in SESSIONS and subject.payment_status != "paid":
        return None
    amount = subject.amount_total if event.type in SESSIONS else subject.amount_received
    order = subject.client_reference_id or (subject.metadata or {}).get(REFERENCE_KEY, "")
    if amount is None or not subject.currency:
        raise BadEvent("no amount, or no currency")
    reference = subject.payment_intent or subject.id
    return Paid(event.id, reference, order, amount, subject.currency.upper())
