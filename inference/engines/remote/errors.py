"""What a server answered instead of a completion, in our terms: `JobRefused`, its text cleaned."""

import re
from typing import Any

import msgspec

from inference.errors import JobRefused

MESSAGE_CHARS_MAX = 300
HTTP_BAD_REQUEST, HTTP_NOT_FOUND, HTTP_SERVER_ERROR = 400, 404, 500
# 402 where the account has nothing left to pay with.
UNAUTHORIZED = frozenset({401, 402, 403})
# Timeout, conflict, too early, too many: another try elsewhere may do.
TRY_ELSEWHERE = frozenset({408, 409, 425, 429})
STATUS = re.compile("[1-5][0-9]{2}")
BILLING = re.compile(r"credit balance|billing|exceeded your current quota", re.I)
CONTENT = frozenset({
    "ResponsibleAIPolicyViolation", "content_filter", "content_policy_violation",
    "moderation_blocked",
})  # fmt: skip
TOO_LONG = re.compile(
    r"context[ _](length|window|size)|maximum (context|prompt|input)|prompt is too long", re.I
)


class ServerRefused(JobRefused):
    """The server answered with an error; its text may quote the prompt, so logs get the status."""

    def __init__(self, code: str, message: str, status: int) -> None:
        super().__init__(code, message)
        self.status = status


def refusal_of(status: int, body: bytes, *, key: str) -> ServerRefused:
    """The refusal for an HTTP status and its body."""
    code, message = _error_of(body, key)
    said = f"HTTP {status}: {message}" if message else f"HTTP {status}"
    if status in UNAUTHORIZED or BILLING.search(message):
        # Its text may name our key or account, which clients must not see.
        return ServerRefused("full", "the server refused the node's key", status)
    if status == HTTP_NOT_FOUND:
        return ServerRefused("unknown_model", f"the server has no such model ({said})", status)
    if status in TRY_ELSEWHERE or status >= HTTP_SERVER_ERROR:
        return ServerRefused("full", f"the server cannot take it now ({said})", status)
    if status < HTTP_BAD_REQUEST:
        return ServerRefused("bad_job", f"the server answered {said}; check --url", status)
    if code in CONTENT:
        return ServerRefused("content_filter", message or said, status)
    too_long = code == "context_length_exceeded" or TOO_LONG.search(message)
    return ServerRefused("too_long" if too_long else "bad_request", message or said, status)


def error_in_stream(error: Any, *, key: str) -> ServerRefused:
    """The refusal for an error event that came before any text."""
    body = msgspec.json.encode({"error": error})
    code, _ = _error_of(body, key)
    status = int(code) if STATUS.fullmatch(code) else HTTP_SERVER_ERROR
    # Whatever else stands there, the request had been accepted.
    if code in CONTENT:
        status = HTTP_BAD_REQUEST
    client = HTTP_BAD_REQUEST <= status < HTTP_SERVER_ERROR
    return refusal_of(status if client else HTTP_SERVER_ERROR, body, key=key)


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
