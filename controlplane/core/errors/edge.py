"""Errors of pages and API that no view answers: too much, too slow, too many, or no database.

One error is JSON for programs and a page for people; the page needs no database and no session.
"""

from dataclasses import dataclass

import msgspec
from django.template.loader import render_to_string

from controlplane.core.audit.origin import API_PREFIXES
from controlplane.core.errors.body import failure

TEMPLATE = "shared/notice.html"
RETRY_S = 2


@dataclass(eq=False)
class EdgeError(Exception):
    """An answer that says `message`; with `retry_s` it may be asked for again then."""

    status: int
    code: str
    title: str
    message: str
    retry_s: int | None = None

    def body(self, path: str) -> tuple[bytes, str]:
        """What is sent to whoever asked for `path`, and its content type."""
        if for_programs(path):
            error = failure(self.status, self.message, code=self.code)
            return msgspec.json.encode(error), "application/json"
        page = render_to_string(TEMPLATE, {"title": self.title, "text": self.message})
        return page.encode(), "text/html; charset=utf-8"

    @property
    def headers(self) -> dict[str, str]:
        """No one may keep it; when to come back."""
        found = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
        if self.retry_s is not None:
            found["retry-after"] = str(self.retry_s)
        return found


def for_programs(path: str) -> bool:
    """Whether who asks for this path reads JSON."""
    return path.startswith(API_PREFIXES)


def busy() -> EdgeError:
    message = "Too many requests for pages and the control API are in progress. Try again shortly."
    return EdgeError(503, "server_is_overloaded", "Service busy", message, RETRY_S)


def database_away() -> EdgeError:
    message = "Nothing was changed. Try again shortly."
    return EdgeError(503, "database_unavailable", "Database unavailable", message, RETRY_S)


def body_too_large(bytes_max: int) -> EdgeError:
    """413 with the bound in its text."""
    message = f"The body must have at most {bytes_max:,} bytes."
    return EdgeError(413, "request_too_large", "Request too large", message)


def body_late(seconds_max: float) -> EdgeError:
    message = f"The body did not arrive within {seconds_max:g} s."
    return EdgeError(408, "request_timeout", "Request timeout", message)


def not_found(path: str) -> EdgeError:
    return EdgeError(404, "unknown_url", "Not found", f"Unknown request URL: {path}.")


def bad_request() -> EdgeError:
    """400: a request that no view can be given."""
    message = "The request is invalid: check its host, path and parameters."
    return EdgeError(400, "malformed_request", "Bad request", message)


def failed() -> EdgeError:
    message = "Internal server error; see the server's log for details."
    return EdgeError(500, "internal_error", "Internal server error", message)
