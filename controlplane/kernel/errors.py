"""The body of every error, over both APIs: OpenAI's four keys, always, and what is told besides."""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict, cast

INVALID_REQUEST = "invalid_request_error"
DENIED = "permission_error"
AWAY = "service_unavailable_error"
SERVER_ERROR = "server_error"


class ErrorFacts(TypedDict):
    """`message` is for people, `code` for programs; `param` names the field at fault.

    `fields` has all fields at fault, each with its messages; the control plane always sends it.
    `degraded` is why the installation cannot serve a model as it should.
    """

    message: str
    type: str
    param: str | None
    code: str | None
    fields: NotRequired[dict[str, list[str]]]
    degraded: NotRequired[dict[str, Any]]


class Error(TypedDict):
    """Why something was not done."""

    error: ErrorFacts


def error_body(
    message: str,
    *,
    kind: str = INVALID_REQUEST,
    param: str | None = None,
    code: str | None = None,
    **more: object,
) -> Error:
    facts = {"message": message, "type": kind, "param": param, "code": code, **more}
    return cast(Error, {"error": facts})
