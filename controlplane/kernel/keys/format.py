"""The shape of credentials: `<prefix>_<id>_<secret>_<checksum>`, checkable without a lookup.

The checksum is CRC-32 in base62, as GitHub's tokens carry it: a mistyped or invented key costs no
query. Only an HMAC of the whole text is stored, so a stolen table opens nothing.
"""

import hmac
import secrets
import string
from collections.abc import Iterable
from hashlib import sha256
from typing import Any
from zlib import crc32

import msgspec

ALPHABET = string.digits + string.ascii_uppercase + string.ascii_lowercase
ID_CHARS = 12
SECRET_CHARS = 43
CHECKSUM_CHARS = 6
USER_PREFIX = "sk_sluice"
ADMIN_PREFIX = "admin_sluice"
NODE_PREFIX = "node_sluice"
ENROL_PREFIX = "enrol_sluice"
HOST_PREFIX = "host_sluice"
_LETTERS = frozenset(ALPHABET)
_USER_ID = slice(len(USER_PREFIX) + 1, len(USER_PREFIX) + 1 + ID_CHARS)


class Credential(msgspec.Struct, frozen=True):
    """A presented credential whose checksum is right; `text` is secret."""

    prefix: str
    key_id: str
    text: str


def _checksum(body: str) -> str:
    value = crc32(body.encode("ascii"))
    digits = []
    for _ in range(CHECKSUM_CHARS):
        value, digit = divmod(value, len(ALPHABET))
        digits.append(ALPHABET[digit])
    return "".join(reversed(digits))


def _random(length: int) -> str:
    return "".join(secrets.choice(ALPHABET) for _ in range(length))


def new_credential(prefix: str = USER_PREFIX) -> Credential:
    key_id = _random(ID_CHARS)
    body = f"{prefix}_{key_id}_{_random(SECRET_CHARS)}"
    return Credential(prefix, key_id, f"{body}_{_checksum(body)}")


def parse_credential(text: str, prefix: str = USER_PREFIX) -> Credential | None:
    """Return the credential, or None when its shape or checksum is wrong. Touches no store."""
    head = prefix + "_"
    expected = len(head) + ID_CHARS + 1 + SECRET_CHARS + 1 + CHECKSUM_CHARS
    if len(text) != expected or not text.startswith(head):
        return None
    body, _, checksum = text.rpartition("_")
    key_id, separator, secret = body[len(head) :].partition("_")
    if len(key_id) != ID_CHARS or not separator or not _LETTERS.issuperset(key_id + secret):
        return None
    if not hmac.compare_digest(_checksum(body).encode(), checksum.encode("utf-8", "replace")):
        return None
    return Credential(prefix, key_id, text)


def claimed_id(text: str) -> str:
    """The id in an inference key, or anything at all where the text is none."""
    return text[_USER_ID]


def digest(credential: str, pepper: bytes) -> bytes:
    """What is stored: HMAC-SHA-256 under a pepper that the database never sees."""
    return hmac.digest(pepper, credential.encode("ascii"), sha256)


def is_digest(kept: bytes, credential: str, peppers: Iterable[bytes]) -> bool:
    """Whether this is stored of the credential, under one of the peppers."""
    return any(hmac.compare_digest(kept, digest(credential, pepper)) for pepper in peppers)


def stored(credential: Credential, pepper: bytes) -> dict[str, Any]:
    """What a row keeps of a credential, by the names of its columns."""
    kept = {"key_id": credential.key_id, "redacted": redacted(credential)}
    return {**kept, "digest": digest(credential.text, pepper)}


class CredentialDigest:
    """`digest` under one pepper, at about half its cost: what the pepper makes of HMAC is kept."""

    def __init__(self, pepper: bytes) -> None:
        self._begun = hmac.new(pepper, digestmod=sha256)

    def __call__(self, credential: str) -> bytes:
        begun = self._begun.copy()
        begun.update(credential.encode("ascii"))
        return begun.digest()


def redacted(credential: Credential) -> str:
    """How pages show a key: prefix, id and the last four characters of its secret part."""
    secret = credential.text.rsplit("_", 2)[1]
    return f"{credential.prefix}_{credential.key_id}_…{secret[-4:]}"
