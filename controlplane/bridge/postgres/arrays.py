"""PostgreSQL array literals as bytes, the cheapest way to hand a batch to a SQL function."""

from collections.abc import Iterable
from typing import Any

import msgspec

WORD_SEPARATOR = "\x1f"
_UNSENDABLE = {0: None, ord(WORD_SEPARATOR): None}


def plain_array(values: Iterable[str]) -> bytes:
    """Of texts that need no quoting: numbers, hex, ids."""
    return ("{" + ",".join(values) + "}").encode("ascii")


def int_array(values: Iterable[int]) -> bytes:
    return ("{" + ",".join(map(str, values)) + "}").encode("ascii")


def nested_array(values: Iterable[Iterable[str]]) -> bytes:
    """Of texts that are array literals themselves; their members need no quoting."""
    return ("{" + ",".join('"{' + ",".join(inner) + '}"' for inner in values) + "}").encode("ascii")


def text_array(values: Iterable[str]) -> bytes:
    """Of any texts; what PostgreSQL cannot store in one is replaced."""
    quoted = ['"' + v.replace("\\", "\\\\").replace('"', '\\"') + '"' for v in values]
    return ("{" + ",".join(quoted) + "}").replace("\0", "").encode("utf-8", "replace")


def json_array(values: Iterable[dict[str, Any]]) -> bytes | None:
    """Of JSON objects, NULL for those that are empty; None where all are."""
    found = list(values)
    if not any(found):
        return None
    texts = (text_array([msgspec.json.encode(value).decode()])[1:-1] for value in found)
    parts = (text if value else b"NULL" for value, text in zip(found, texts, strict=True))
    return b"{" + b",".join(parts) + b"}"


def word_array(rows: Iterable[tuple[str, ...]]) -> bytes:
    """Of rows of words, each joined by the unit separator and split again in SQL."""
    return text_array(
        [WORD_SEPARATOR.join(word.translate(_UNSENDABLE) for word in row) for row in rows]
    )
