"""The body of every error of the control plane: OpenAI's, with all fields at fault besides; and the
error of a change that came too late.
"""

from collections.abc import Mapping

from django.core.exceptions import ValidationError

from controlplane.kernel.apis import AWAY, DENIED, INVALID, SERVER_ERROR, Error, error_body

BROKEN_FROM = 500
RATE_KIND = "requests"
KINDS = {403: DENIED, 429: RATE_KIND, 503: AWAY}
# Where an error names none of its own; a field at fault is code enough.
CODES = {
    401: "invalid_api_key",
    403: "permission_denied",
    404: "not_found",
    405: "method_not_allowed",
    409: "conflict",
    415: "unsupported_content_type",
    429: "rate_limit_exceeded",
}
Fields = Mapping[str, list[str]]


def failure(
    status: int, message: str = "", *, fields: Fields | None = None, code: str | None = None
) -> Error:
    """Without a message of its own an error says that of the first field; `param` names it."""
    fields = fields or {}
    param = next(iter(fields), None)
    return error_body(
        message or f"{param}: {' '.join(fields[param or ''])}",
        kind=KINDS.get(status, SERVER_ERROR if status >= BROKEN_FROM else INVALID),
        param=param,
        code=code or CODES.get(status),
        fields=fields,
    )


class Conflict(ValidationError):
    """Someone else was first, or the thing is past the state in which this can be done to it."""
