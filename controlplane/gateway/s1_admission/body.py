"""Read the request body within its bounds of size and time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from controlplane.gateway.bounds import within
from controlplane.gateway.call import Call, ClientGone
from controlplane.gateway.refusal import NO_RETRY, Refusal, bad_field
from controlplane.kernel.spans import INDEX

BODY = INDEX["s1_admission.body"]
BODY_BYTES_MAX = 8 * 1024 * 1024
BODY_READ_S_MAX = 30.0

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


async def read_body(call: Call, receive: Receive) -> bytes:
    """The whole body; raises `Refusal` (413, 408) or `ClientGone`."""
    began = call.spans.clock()
    try:
        _check_encoding(call.header(b"content-encoding"))
        _check_length(call.header(b"content-length"))
        return await within(BODY_READ_S_MAX, _collect(receive))
    except TimeoutError as error:
        message = f"The body did not arrive within {BODY_READ_S_MAX:.0f} s."
        raise Refusal(408, "request_timeout", message) from error
    finally:
        call.spans.add(BODY, began)


async def _collect(receive: Receive) -> bytes:
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        part = message.get("body", b"")
        size += len(part)
        if size > BODY_BYTES_MAX:
            raise too_large()
        parts.append(part)
        if not message.get("more_body", False):
            return parts[0] if len(parts) == 1 else b"".join(parts)


def _check_encoding(header: str | None) -> None:
    if header not in (None, "identity"):
        message = f"Content-Encoding '{header}' is not accepted; send the body as it is."
        raise Refusal(415, "unsupported_encoding", message, headers=NO_RETRY)


def _check_length(header: str | None) -> None:
    if header is None:
        return
    if not header.isdecimal():
        raise bad_field("content-length", "The Content-Length header is not a number.")
    if int(header) > BODY_BYTES_MAX:
        raise too_large()


def too_large() -> Refusal:
    """413 with the bound in its text."""
    message = f"The body is larger than {BODY_BYTES_MAX} bytes."
    return Refusal(413, "request_too_large", message, headers=NO_RETRY)


async def watch_client(call: Call, receive: Receive) -> None:
    """Wait until the client closes; the server says so too when the answer is complete."""
    message = await receive()
    while message["type"] != "http.disconnect":
        message = await receive()
    call.client_left()
