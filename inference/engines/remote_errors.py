"""What a server answered instead of a completion, in our terms: `JobRefused`, its text cleaned."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from inference.engines.base import JobRefused

MESSAGE_CHARS_MAX = 300
HTTP_BAD_REQUEST, HTTP_NOT_FOUND, HTTP_SERVER_ERROR = 400, 404, 500
UNAUTHORIZED = frozenset({401, 403})
# Timeout, conflict, too early, too many: another try elsewhere may do.
TRY_ELSEWHERE = frozenset({408, 409, 425, 429})
TOO_LONG = re.compile(r"context[ _](length|window|size)|maximum (context|prompt|input)", re.I)


class Unauthorized(JobRefused):
    """The server does not accept our key: the node is of no use until that is mended."""


def refusal_of(status: int, body: bytes, *, key: str) -> JobRefused:
    """The refusal for an HTTP status and its body."""
    code, message = _error_of(body, key)
    said = f"HTTP {status}: {message}" if message else f"HTTP {status}"
    if status in UNAUTHORIZED:
        # Its text may name our key or account, which is no client's business.
        return Unauthorized("full", f"the server refused the node's key (HTTP {status})")
    if status == HTTP_NOT_FOUND:
        return JobRefused("unknown_model", f"the server does not know the model ({said})")
    if status in TRY_ELSEWHERE or status >= HTTP_SERVER_ERROR:
        return JobRefused("full", f"the server cannot take it now ({said})")
    if status >= HTTP_BAD_REQUEST:
        return bad_request(code, message or f"HTTP {status}")
    return JobRefused("bad_job", f"the server answered {said}; check --url")


def error_in_stream(error: Any, *, key: str) -> JobRefused:
    """The refusal for an error event that came before any text."""
    code, message = _error_of(msgspec.json.encode({"error": error}), key)
    status = int(code) if code.isdigit() else HTTP_SERVER_ERROR
    if HTTP_BAD_REQUEST <= status < HTTP_SERVER_ERROR:
        return refusal_of(status, msgspec.json.encode({"error": error}), key=key)
    return JobRefused("full", f"the server failed: {message or 'without a reason'}")


def bad_request(code: str, message: str) -> JobRefused:
    """The client's own fault, which no other node would mend."""
    if code == "context_length_exceeded" or TOO_LONG.search(message):
        return JobRefused("too_long", message)
    return JobRefused("bad_request", message)


def clean(text: str, key: str) -> str:
    """One printable line of bounded length, without our key."""
    if key:
        text = text.replace(key, "[key]")
    words = "".join(char if char.isprintable() else " " for char in text).split()
    line = " ".join(words)
    return line if len(line) <= MESSAGE_CHARS_MAX else line[:MESSAGE_CHARS_MAX] + "…"


def _error_of(body: bytes, key: str) -> tuple[str, str]:
    """Code and message of an error body, in any of the shapes that servers use."""
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return "", ""
    error = document.get("error", document) if isinstance(document, dict) else document
    if not isinstance(error, dict):
        return "", clean(error, key) if isinstance(error, str) else ""
    message = error.get("message") or error.get("detail") or ""
    return str(error.get("code") or ""), clean(str(message), key)
