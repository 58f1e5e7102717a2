"""The frames by which a gateway gets the token ids of a prompt from a server behind a node, where
only that has the tokenizer; see `frames`.
"""

from array import array
from collections.abc import Iterable

import msgspec

# A frame can hold as many.
TOLD_IDS_MAX = 524_288
ID_BYTES = 4


class Tokenize(msgspec.Struct, tag="tokenize", array_like=True, frozen=True, kw_only=True):
    """Tell the token ids of a prompt; `request_json` is that of a `Job` for the model."""

    number: int
    model: str
    request_json: bytes


class Tokens(msgspec.Struct, tag="tokens", array_like=True, frozen=True, kw_only=True):
    """Answer to `Tokenize`, with its number; `ids` has 4 bytes for each, and none where the server
    does not tell them.
    """

    number: int
    ids: bytes


def pack_ids(ids: Iterable[int]) -> bytes:
    """Raises OverflowError, TypeError for what is no id."""
    return array("I", ids).tobytes()


def unpack_ids(data: bytes) -> list[int]:
    """Undo `pack_ids`; raises ValueError when the length is no multiple of 4."""
    return array("I", data).tolist()
