"""The body of every error, over both APIs: OpenAI's four keys, always, and what is told besides."""

from __future__ import annotations

INVALID_REQUEST = "invalid_request_error"
DENIED = "permission_error"
AWAY = "service_unavailable_error"
SERVER_ERROR = "server_error"


def error_body(
    message: str,
    *,
    kind: str = INVALID_REQUEST,
    param: str | None = None,
    code: str | None = None,
    **more: object,
) -> dict[str, dict[str, object]]:
    """`message` is for people, `code` for programs; `param` names the field at fault."""
    return {"error": {"message": message, "type": kind, "param": param, "code": code, **more}}
