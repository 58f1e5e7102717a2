"""One recorded request, or a few on one connection, as the bytes that are sent."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
EMBED, PREFLIGHT = "/v1/embeddings", "/v1/preflight"
JSON = "application/json"
# Where a key's secret stands, by the key's label.
KEY = re.compile(rb"@KEY:(\w+)@")
# How many answers to wait for: as many as come until the server closes the connection.
ALL = -1


@dataclass(frozen=True)
class Case:
    """What is sent on one connection. `answers` are waited for; then it is seen whether it is kept.

    The pieces after the first are sent when the server has said something, where `waits` says so.
    `told` reports each piece that is read to the scripted nodes, `leaves` hangs up after so many.
    A `fresh` connection is no other case's. `beside` is a case that is begun before this one, up to
    its first piece, and ended after it.
    """

    name: str
    kind: str
    pieces: tuple[bytes, ...]
    answers: int = 1
    headless: bool = False
    waits: bool = False
    told: bool = False
    leaves: int | None = None
    fresh: bool = False
    beside: Case | None = None

    @property
    def digest(self) -> str:
        """Of what is sent: a kept answer is to these bytes."""
        joined = b"\0".join(self.pieces) + (self.beside.digest.encode() if self.beside else b"")
        return sha256(joined).hexdigest()[:12]


def head(method: str, target: str, headers: Mapping[str, str], version: str = "HTTP/1.1") -> bytes:
    """A request line and its headers, in their order; one whose value is empty is left out."""
    lines = [f"{method} {target} {version}"]
    lines += [f"{name}: {value}" for name, value in headers.items() if value]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def heads(key: str = "main", **more: str) -> dict[str, str]:
    """The usual headers; those in `more` replace or follow them, with `_` for `-`."""
    named = {name.replace("_", "-"): value for name, value in more.items()}
    usual = {"host": "sluice", "authorization": f"Bearer @KEY:{key}@" if key else ""}
    return {**usual, **named}


def post(path: str, body: bytes | Mapping[str, Any], key: str = "main", **more: str) -> bytes:
    """A whole request with a body."""
    data = body if isinstance(body, bytes) else encode(body)
    sized = {"content-type": JSON, "content-length": str(len(data))}
    named = {name.replace("_", "-"): value for name, value in more.items()}
    return head("POST", path, {**heads(key), **sized, **named}) + data


def get(path: str, key: str = "main", method: str = "GET", **more: str) -> bytes:
    """A whole request without one."""
    return head(method, path, heads(key, **more))


def encode(body: Mapping[str, Any]) -> bytes:
    """JSON as most clients write it."""
    return json.dumps(body, ensure_ascii=False, separators=(", ", ": ")).encode()


def chunked(data: bytes, *sizes: int) -> bytes:
    """A body in chunks of these sizes, and what is left in one."""
    parts = []
    for size in (*sizes, len(data)):
        piece, data = data[:size], data[size:]
        if piece:
            parts.append(b"%x\r\n%s\r\n" % (len(piece), piece))
    return b"".join(parts) + b"0\r\n\r\n"
