"""From where a change comes: a page, the API, a command or a job; read by whoever writes audit.

Set once at each door and kept in a context variable, so that no service passes it on.
"""

import getpass
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from hashlib import sha256

from django.conf import settings
from django.http import HttpRequest, HttpResponse

from controlplane.kernel.ids import public_id
from controlplane.kernel.keys.scopes import far_address, parse_address

AGENT_CHARS_MAX = 200
# Names and versions of clients are shorter, and secrets longer: links, tokens and keys.
_OPAQUE = re.compile(r"[\w.-]{32,}")
REFERENCE_CHARS = 12
API_PREFIXES = ("/api/", "/v1/")
# Where a session keeps the id of its row in the list that its owner sees.
LISTED = "listed"


@dataclass(frozen=True)
class Origin:
    """A door: `page`, `api`, `command` or `job`; what came through it, from which address.

    `agent` is what the client calls itself, or the command. `credential` names a session or key,
    never what opens it.
    """

    channel: str
    address: str = ""
    agent: str = ""
    credential: str = ""


JOB = Origin("job")
_present: ContextVar[Callable[[], Origin]] = ContextVar("origin", default=lambda: JOB)


def origin_now() -> Origin:
    return _present.get()()


@contextmanager
def coming_from(origin: Callable[[], Origin]) -> Iterator[None]:
    """What happens inside came from there; asked only when something is written about it."""
    before = _present.set(origin)
    try:
        yield
    finally:
        _present.reset(before)


def command_origin(command: str) -> Origin:
    return Origin("command", agent=command, credential=f"{_account()}@{socket.gethostname()}")


def credential_noted(request: HttpRequest, label: str) -> None:
    """Say which credential a request was let in with, by what names it and opens nothing."""
    request.credential_label = label  # type: ignore[attr-defined]


class OriginMiddleware:
    """Notes each request as the origin of what it changes."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        with coming_from(lambda: request_origin(request)):
            return self._get_response(request)


def request_origin(request: HttpRequest) -> Origin:
    agent = "".join(char for char in request.headers.get("User-Agent", "") if char.isprintable())
    return Origin(
        channel="api" if request.path.startswith(API_PREFIXES) else "page",
        address=client_address(request),
        agent=_OPAQUE.sub("…", agent)[:AGENT_CHARS_MAX],
        credential=getattr(request, "credential_label", "") or _session_label(request),
    )


def client_address(request: HttpRequest) -> str:
    """The client's address; behind a trusted proxy the one that it forwards."""
    peer: str = request.META.get("REMOTE_ADDR") or ""
    told = request.headers.get("X-Forwarded-For", "")
    # An address as one writes it; nothing where it is none.
    found = parse_address(far_address(peer, told, settings.TRUSTED_PROXIES))
    return str(found) if found else ""


def _session_label(request: HttpRequest) -> str:
    session = getattr(request, "session", None)
    key = session.session_key if session is not None else None
    if session is None or key is None:
        return ""
    # A session whose row is not made yet is named by a hash that opens nothing.
    if listed := session.get(LISTED):
        return public_id("session", listed)
    return f"session {sha256(key.encode()).hexdigest()[:REFERENCE_CHARS]}"


def _account() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        # A container may run under a number that has no name.
        return "unknown"
