"""What the head of an HTTP request must be like, whichever parser read it, and how it is refused.

The parser refuses what is no HTTP at all; here is what HTTP leaves open and two servers in a row
may read in two ways: which host, whose credential, where the body ends.
"""

import re
from base64 import b64decode
from functools import lru_cache
from http import HTTPStatus
from urllib.parse import unquote

import httptools
import msgspec

from controlplane.gateway.refusal import NO_RETRY, Refusal, unavailable

# Request line and headers, or anything else that a client sends before the body goes on.
HEAD_BYTES_MAX = 64 * 1024
URL_BYTES_MAX = 16 * 1024
HEADERS_MAX = 100
# Requests that wait in one connection for the answer to the one before them.
PIPELINED_MAX = 16
NONCE_BYTES = 16
BUSY_RETRY_S = 1
# The last URLs of requests in a process, each read once.
URLS_KEPT = 64

Headers = list[tuple[bytes, bytes]]

_VERSIONS = frozenset({"1.0", "1.1"})
# Sent twice with two values, no one knows which one counts.
_SINGLE = frozenset(
    {b"authorization", b"content-encoding", b"content-type", b"idempotency-key", b"x-api-key"}
)
_HOST = re.compile(rb"[\w.~%!$&'()*+,;=:\[\]-]*", re.ASCII)


def check_head(headers: Headers, *, version: str) -> dict[bytes, bytes]:
    """The headers by name, if a request may be read on; raises `Refusal` (400, 431, 501, 505).

    Names of headers are in lower case.
    """
    if version not in _VERSIONS:
        message = f"HTTP/{version} is not supported; use HTTP/1.1."
        raise Refusal(505, "unsupported_http_version", message, headers=NO_RETRY)
    if len(headers) > HEADERS_MAX:
        raise headers_too_large()
    told = dict(headers)
    if len(told) < len(headers):
        _check_repeated(headers, version)
    if b"transfer-encoding" in told:
        _check_coding(told[b"transfer-encoding"], version)
    if b"host" in told:
        _check_host(told[b"host"])
    elif version == "1.1":
        raise _bad_header("host", "The Host header is missing.")
    return told


@lru_cache(URLS_KEPT)
def read_url(url: bytes) -> tuple[str, bytes, bytes]:
    """Path, the same as it was sent, and query; raises httptools' or a decoding error."""
    parts = httptools.parse_url(url)
    raw_path = parts.path or b"/"
    path = raw_path.decode("ascii")
    return unquote(path) if "%" in path else path, raw_path, parts.query or b""


def head_bytes(headers: Headers) -> int:
    return sum([len(name) + len(value) for name, value in headers])


def has_body(headers: Headers) -> bool:
    return any(
        name == b"transfer-encoding" or (name == b"content-length" and value.strip(b" 0"))
        for name, value in headers
    )


def opens_websocket(method: bytes, headers: Headers) -> bool:
    """Whether the head is a handshake as RFC 6455 has it."""
    told = dict(headers)
    try:
        nonce = b64decode(told.get(b"sec-websocket-key", b""), validate=True)
    except ValueError:
        return False
    return (
        method == b"GET"
        and told.get(b"sec-websocket-version") == b"13"
        and len(nonce) == NONCE_BYTES
    )


def without_upgrade(method: bytes, url: bytes, version: str, headers: Headers) -> bytes:
    """A head that was read, less its `Upgrade`, which RFC 9110 lets a server ignore."""
    kept = [name + b": " + value for name, value in headers if name != b"upgrade"]
    line = b"%s %s HTTP/%s" % (method, url, version.encode())
    return b"\r\n".join([line, *kept, b"", b""])


def malformed(reason: str) -> Refusal:
    message = f"The request is not valid HTTP: {reason.removesuffix('.')}."
    return Refusal(400, "malformed_request", message, headers=NO_RETRY)


def upgrade_refused() -> Refusal:
    """400: a WebSocket was asked for in a way that leaves open where the request ends."""
    message = (
        "A WebSocket request must have no body and must be the first request of its connection."
    )
    return Refusal(400, "upgrade_refused", message, headers=NO_RETRY)


def url_too_long() -> Refusal:
    message = f"The URL is longer than {URL_BYTES_MAX} bytes."
    return Refusal(414, "url_too_long", message, headers=NO_RETRY)


def headers_too_large() -> Refusal:
    message = f"The request has more than {HEADERS_MAX} headers, or {HEAD_BYTES_MAX} bytes of them."
    return Refusal(431, "headers_too_large", message, headers=NO_RETRY)


def head_late(seconds_max: float) -> Refusal:
    message = f"The request's headers did not arrive within {seconds_max:g} s."
    return Refusal(408, "request_timeout", message)


def too_many_pipelined() -> Refusal:
    message = f"At most {PIPELINED_MAX} pipelined requests may wait on one connection."
    return Refusal(400, "too_many_pipelined", message, headers=NO_RETRY)


def too_many_connections() -> Refusal:
    message = "Too many connections are open. Close some, or try again later."
    return unavailable("too_many_connections", message, retry_after_s=BUSY_RETRY_S)


def answer_bytes(refusal: Refusal) -> bytes:
    """A whole HTTP/1.1 answer, after which the connection is closed."""
    body = msgspec.json.encode(refusal.body)
    status = HTTPStatus(refusal.status)
    headers = [
        ("content-type", "application/json"),
        ("content-length", str(len(body))),
        ("connection", "close"),
        *refusal.headers,
    ]
    lines = [f"HTTP/1.1 {status.value} {status.phrase}", *(f"{n}: {v}" for n, v in headers)]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def _check_repeated(headers: Headers, version: str) -> None:
    seen: dict[bytes, bytes] = {}
    for name, value in headers:
        if name == b"transfer-encoding":
            _check_coding(value, version)
        elif name == b"host" and name in seen:
            raise _ambiguous("host", "was sent twice")
        elif seen.setdefault(name, value) != value and name in _SINGLE:
            raise _ambiguous(name.decode(), "was sent twice with different values")


def _check_host(value: bytes) -> None:
    if not _HOST.fullmatch(value):
        raise _bad_header("host", "The Host header is not a valid host name.")


def _check_coding(value: bytes, version: str) -> None:
    if version != "1.1":
        raise _bad_header("transfer-encoding", "HTTP/1.0 does not support Transfer-Encoding.")
    if value.strip().lower() != b"chunked":
        message = "The only Transfer-Encoding is 'chunked', sent once."
        raise Refusal(
            501,
            "unsupported_transfer_encoding",
            message,
            param="transfer-encoding",
            headers=NO_RETRY,
        )


def _ambiguous(name: str, what: str) -> Refusal:
    return _bad_header(name, f"The header '{name}' {what}.")


def _bad_header(name: str, message: str) -> Refusal:
    return Refusal(400, "invalid_header", message, param=name, headers=NO_RETRY)
