"""Addresses of channels, sealed: whoever has the address of a Slack-compatible one may write there.

The database holds what only this installation's key opens, a digest that tells two addresses
apart, and the few characters that people know them again by.
"""

import hmac
import uuid
from hashlib import sha256
from typing import NamedTuple
from urllib.parse import urlsplit

from django.conf import settings

from controlplane.core.seal import sealed, unsealed

EMAIL = "email"
# Of a path as long as that of a secret; of a shorter one nothing is shown.
SHOWN_CHARS = 4
PATH_CHARS_MIN = 16
_PURPOSE = "slo_channels.address"


class SealedAddress(NamedTuple):
    """An address as its row keeps it; `shown` is its host and end, of a mailbox all."""

    sealed: bytes
    digest: bytes
    shown: str


def address_kept(
    channel_id: uuid.UUID, organization: uuid.UUID, kind: str, address: str
) -> SealedAddress:
    """What the channel's row keeps of its address."""
    return SealedAddress(
        sealed(settings.WEBHOOK_KEY, address.encode(), _place(channel_id, organization)),
        address_digest(organization, kind, address),
        address if kind == EMAIL else _shown(address),
    )


def address_of(channel_id: uuid.UUID, organization: uuid.UUID, kept: bytes) -> str:
    """The address again; raises `core.seal.BrokenSeal` under another key or in another row."""
    return unsealed(settings.WEBHOOK_KEY, kept, _place(channel_id, organization)).decode()


def address_digest(organization: uuid.UUID, kind: str, address: str) -> bytes:
    """The same for the same address of an organization alone; no one without the key makes it."""
    text = f"{_PURPOSE}:{organization}:{kind}:{address}"
    return hmac.digest(settings.WEBHOOK_KEY, text.encode(), sha256)


def _shown(address: str) -> str:
    parts = urlsplit(address)
    rest = address.partition(parts.netloc)[2]
    end = rest[-SHOWN_CHARS:] if len(rest) >= PATH_CHARS_MIN else ""
    return f"{parts.netloc}/…{end}" if rest.strip("/") else parts.netloc


def _place(channel_id: uuid.UUID, organization: uuid.UUID) -> bytes:
    return f"{_PURPOSE}:{channel_id}:{organization}".encode()
