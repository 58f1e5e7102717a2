"""PostgreSQL array literals as bytes, the cheapest way to hand a batch to a SQL function."""

from binascii import hexlify
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

WORD_SEPARATOR = "\x1f"


def plain_array(values: Iterable[str]) -> bytes:
    """Of texts that need no quoting: numbers, hex, ids."""
    return ("{" + ",".join(values) + "}").encode("ascii")


def int_array(values: Iterable[int]) -> bytes:
    return ("{" + ",".join(map(str, values)) + "}").encode("ascii")


def hex_array(values: Iterable[bytes]) -> bytes:
    """Of bytes, as hex."""
    return b"{" + b",".join([hexlify(value) or b'""' for value in values]) + b"}"


def nested_array(values: Iterable[Iterable[str]]) -> bytes:
    """Of texts that are array literals themselves; their members need no quoting."""
    found = list(map(",".join, values))
    return ('{"{' + '}","{'.join(found) + '}"}').encode("ascii") if found else b"{}"


def text_array(values: Iterable[str]) -> bytes:
    """Of any texts; what PostgreSQL cannot store in one is replaced."""
    found = list(values)
    joined = "\0".join(found)
    if joined.count("\0") >= len(found):
        joined = "\0".join([value.replace("\0", "") for value in found])
    quoted = joined.replace("\\", "\\\\").replace('"', '\\"').replace("\0", '","')
    return ('{"' + quoted + '"}').encode("utf-8", "replace") if found else b"{}"


def json_array(values: Iterable[dict[str, Any]]) -> bytes | None:
    """Of JSON objects, NULL for those that are empty; None where all are."""
    found = list(values)
    if not any(found):
        return None
    texts = (text_array([msgspec.json.encode(value).decode()])[1:-1] for value in found)
    parts = (text if value else b"NULL" for value, text in zip(found, texts, strict=True))
    return b"{" + b",".join(parts) + b"}"


def word_array(rows: Sequence[tuple[str, ...]]) -> bytes:
    """Of rows of words, each joined by the unit separator and split again in SQL."""
    joined = list(map(WORD_SEPARATOR.join, rows))
    if "".join(joined).count(WORD_SEPARATOR) > sum(map(len, rows)) - len(rows):
        clean = [[word.replace(WORD_SEPARATOR, "") for word in row] for row in rows]
        joined = list(map(WORD_SEPARATOR.join, clean))
    return text_array(joined)
