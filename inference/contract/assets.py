"""The files behind a model's digest, and the digest itself, computed alike by node and gateway."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256

ASSET_FILES = ("tokenizer.json", "tokenizer_config.json")
LENGTH_BYTES = 8


def asset_digest(files: Mapping[str, bytes]) -> str:
    """SHA-256 (hex) over tokenizer and configuration, which holds the chat template.

    Each file goes in behind its length, so no two sets of files run together to equal bytes.
    Raises KeyError for a missing file.
    """
    digest = sha256(b"sluice-assets")
    for name in ASSET_FILES:
        data = files[name]
        digest.update(len(data).to_bytes(LENGTH_BYTES, "big"))
        digest.update(data)
    return digest.hexdigest()
