"""Secrets that must be read again, sealed for the one place where they are kept (AES-256-GCM)."""

import os
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

NONCE_BYTES = 12


class BrokenSeal(ValueError):
    """Changed since, moved from its place, or sealed under another key."""


def sealed(key: bytes, secret: bytes, place: bytes) -> bytes:
    """The secret as it may be stored at `place`: purpose, row and owner."""
    nonce = os.urandom(NONCE_BYTES)
    return nonce + _cipher(key).encrypt(nonce, secret, place)


def unsealed(key: bytes, kept: bytes, place: bytes, before: Sequence[bytes] = ()) -> bytes:
    """The secret again, by its key or one of those before it; raises BrokenSeal."""
    for each in (key, *before):
        with suppress(InvalidTag, ValueError):
            return _cipher(each).decrypt(kept[:NONCE_BYTES], kept[NONCE_BYTES:], place)
    raise BrokenSeal


def _cipher(key: bytes) -> AESGCM:
    return AESGCM(sha256(key).digest())
