"""How a message leaves: one signed POST to an address that is not inside our own network.

Addresses are sealed: whoever has that of a Slack-compatible one may write there. The database holds
what only this installation's key opens, a digest that tells two addresses apart, and the few
characters that people know them again by.
"""

from __future__ import annotations

import hmac
import uuid
from base64 import b64decode, b64encode
from collections.abc import Sequence
from hashlib import sha256
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import urlsplit
from uuid import UUID

from django.conf import settings
from django.core.exceptions import ValidationError

from controlplane.core.outbound import NotReached, outbound
from controlplane.core.seal import sealed, unsealed
from controlplane.slos.checks import is_link

EMAIL = "email"
# Of a path as long as that of a secret; of a shorter one nothing is shown.
SHOWN_CHARS = 4
PATH_CHARS_MIN = 16
_PURPOSE = "slo_channels.address"
ANSWER_BYTES_MAX = 4_096
WEBHOOK, SLACK, TEAMS = "webhook", "slack", "teams"
PAGERDUTY, OPSGENIE = "pagerduty", "opsgenie"
# Their key is the address's fragment.
KEYED = {
    PAGERDUTY: "https://events.pagerduty.com/v2/enqueue",
    OPSGENIE: "https://api.opsgenie.com/v2/alerts",
}
POSTED = (WEBHOOK, SLACK, TEAMS, *KEYED)
SIGNATURE = "Sluice-Signature"


class SealedAddress(NamedTuple):
    """An address as its row keeps it; `shown` is its host and end, of a mailbox all."""

    sealed: bytes
    digest: bytes
    shown: str


def address_kept(channel_id: UUID, organization: UUID, kind: str, address: str) -> SealedAddress:
    """What the channel's row keeps of its address."""
    return SealedAddress(
        sealed(settings.WEBHOOK_KEY, address.encode(), _place(channel_id, organization)),
        address_digest(organization, kind, address),
        address if kind == EMAIL else _shown(address),
    )


def address_of(channel_id: UUID, organization: UUID, kept: bytes) -> str:
    """The address again; raises `core.seal.BrokenSeal` under another key or in another row."""
    place, before = _place(channel_id, organization), settings.WEBHOOK_KEYS_BEFORE
    return unsealed(settings.WEBHOOK_KEY, kept, place, before).decode()


def address_digest(organization: UUID, kind: str, address: str) -> bytes:
    """The same for the same address of an organization alone; no one without the key makes it."""
    text = f"{_PURPOSE}:{organization}:{kind}:{address}"
    return hmac.digest(settings.WEBHOOK_KEY, text.encode(), sha256)


def _shown(address: str) -> str:
    parts = urlsplit(address)
    rest = address.partition(parts.netloc)[2]
    end = rest[-SHOWN_CHARS:] if len(rest) >= PATH_CHARS_MIN else ""
    return f"{parts.netloc}/…{end}" if rest.strip("/") else parts.netloc


def _place(channel_id: UUID, organization: UUID) -> bytes:
    return f"{_PURPOSE}:{channel_id}:{organization}".encode()


def address_check(kind: str, address: str) -> None:
    """Return if messages may be sent there; raises ValidationError at `kind` or `address`."""
    if kind not in POSTED:
        raise ValidationError({"kind": f"Must be one of {', '.join(POSTED)} or {EMAIL}."})
    if not is_link(address):
        raise ValidationError({"address": "Must be a URL that begins with https:// or http://."})
    parts = urlsplit(address)
    if kind in KEYED and not parts.fragment:
        told = f"Must end in # and the integration's key, as {KEYED[kind]}#KEY."
        raise ValidationError({"address": told})
    if parts.username is not None:
        raise ValidationError(
            {
                "address": "Must not contain a user name or password: the "
                "signature proves the sender."
            }
        )
    if parts.scheme == "http" and not settings.WEBHOOKS_PRIVATE:
        raise ValidationError({"address": "https:// only (or set SLUICE_WEBHOOKS_PRIVATE=true)."})


def signing_secret(channel_id: uuid.UUID) -> str:
    """What the receiver checks signatures with; made from the channel's id, so it is not stored."""
    return signing_secrets(channel_id)[0]


def signing_secrets(channel_id: uuid.UUID) -> list[str]:
    """With those under earlier keys, which receivers may still have."""
    keys = (settings.WEBHOOK_KEY, *settings.WEBHOOK_KEYS_BEFORE)
    return [hmac.new(key, channel_id.bytes, sha256).hexdigest() for key in keys]


def signature(secrets: Sequence[str], body: bytes, at_s: int) -> str:
    """The header's value: when it was signed, and by each secret an HMAC-SHA256 over
    `<time>.<body>`; one that fits is enough.
    """
    text = f"{at_s}.".encode() + body
    made = (hmac.new(each.encode(), text, sha256).hexdigest() for each in secrets)
    return ",".join([f"t={at_s}", *(f"v1={each}" for each in made)])


def signed(secrets: Sequence[str], message: str, body: bytes, at_s: int) -> dict[str, str]:
    """The headers of a webhook: our own, and those of Standard Webhooks, whose keys are what the
    secrets are the base64 of.
    """
    text = f"{message}.{at_s}.".encode() + body
    made = (hmac.digest(b64decode(each), text, sha256) for each in secrets)
    return {
        SIGNATURE: signature(secrets, body, at_s),
        "webhook-id": message,
        "webhook-timestamp": str(at_s),
        "webhook-signature": " ".join(f"v1,{b64encode(each).decode()}" for each in made),
    }


def post(address: str, body: bytes, headers: dict[str, str]) -> None:
    """Send it; raises NotReached unless it was answered 2xx."""
    headers, private = {"Content-Type": "application/json", **headers}, settings.WEBHOOKS_PRIVATE
    status, _ = outbound(
        "POST", address, headers=headers, private=private, bytes_max=ANSWER_BYTES_MAX, body=body
    )
    if not HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
        raise NotReached(f"answered {status}")
