"""How what was said is sealed and found: each project has a data key, wrapped by the deployment's.

Without its data key nothing of a project can be read or searched: to forget the key is to delete.
"""

import os
import zlib
from base64 import urlsafe_b64encode
from collections.abc import Iterable
from hashlib import blake2b, sha256

import msgspec
from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings

from controlplane.core.seal import BrokenSeal, sealed, unsealed
from controlplane.kernel.contents.kept import KeptContent

DATA_KEY_BYTES = 32
HASH_BYTES = 8
COMPRESSION = 1
_decoder = msgspec.msgpack.Decoder(KeptContent)


class ContentKey:
    """The data key of a project (32 hex characters), opened; raises BrokenSeal."""

    def __init__(self, wrapped: bytes, project: str) -> None:
        self.wrapped = wrapped
        self._project = project
        try:
            data_key = _deployment().decrypt(wrapped)
        except InvalidToken as error:
            raise BrokenSeal from error
        self._seal, self._terms = (
            blake2b(purpose, key=data_key, digest_size=DATA_KEY_BYTES).digest()
            for purpose in (b"seal", b"terms")
        )

    def seal(self, content: KeptContent) -> bytes:
        plain = zlib.compress(msgspec.msgpack.encode(content), COMPRESSION)
        return sealed(self._seal, plain, self._place(content.organization, content.request))

    def open(self, kept: bytes, organization: str, request: bytes) -> KeptContent:
        """What was sealed of that request; raises BrokenSeal."""
        plain = unsealed(self._seal, kept, self._place(organization, request))
        return _decoder.decode(zlib.decompress(plain))

    def hashes(self, terms: Iterable[str]) -> list[int]:
        """All that the database has of what is searched for."""
        return [
            int.from_bytes(
                blake2b(each.encode(), key=self._terms, digest_size=HASH_BYTES).digest(),
                signed=True,
            )
            for each in terms
        ]

    def _place(self, organization: str, request: bytes) -> bytes:
        return f"content:{organization}:{self._project}:".encode() + request


def wrapped_anew(wrapped: bytes | None) -> bytes:
    """A data key under the deployment's present key; a new one where there is none."""
    ring = _deployment()
    return ring.encrypt(os.urandom(DATA_KEY_BYTES)) if wrapped is None else ring.rotate(wrapped)


def _deployment() -> MultiFernet:
    keys = (sha256(key.encode()).digest() for key in settings.CONTENT_KEYS)
    return MultiFernet([Fernet(urlsafe_b64encode(key)) for key in keys])
