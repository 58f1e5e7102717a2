"""Read the request body within its bounds of size and time."""

from collections.abc import Awaitable, Callable

from controlplane.gateway.bounds import within
from controlplane.gateway.call import Call, ClientGone
from controlplane.gateway.http.exchange import Incoming
from controlplane.gateway.refusal import NO_RETRY, Refusal, bad_field, over_share, unavailable
from controlplane.kernel.bytes_budget import BytesBudget, Portion
from controlplane.kernel.spans import INDEX

BODY = INDEX["s1_admission.body"]
BODY_BYTES_MAX = 16 * 1024 * 1024
BODY_READ_S_MAX = 30.0
TYPE_CHARS_MAX = 100
# Of all bodies that are being read, without the first part of each.
BODIES_BYTES_MAX = 256 * 1024 * 1024
SMALL_BYTES = 256 * 1024
RETRY_S = 1


class LimitsCheck:
    """Whether the key has a request left, asked at most once for a request."""

    def __init__(self, check: Callable[[], Awaitable[None]]) -> None:
        self._check = check
        self._asked = False

    async def __call__(self) -> None:
        """Raises `Refusal` (429)."""
        if not self._asked:
            self._asked = True
            await self._check()


def bodies_budget() -> BytesBudget:
    """For the bodies that one process reads at the same time."""
    return BytesBudget(bytes_max=BODIES_BYTES_MAX, small_bytes=SMALL_BYTES)


async def read_body(
    call: Call,
    exchange: Incoming,
    portion: Portion,
    check_limits: LimitsCheck,
    *,
    seconds_max: float,
) -> bytes:
    """The whole body; raises `Refusal` (400, 408, 413, 415, 429, 503) or `ClientGone`.

    `check_limits` raises it too: it is asked before more is read than a small body has. The body
    stays counted until the caller frees its portion.
    """
    began = call.spans.clock()
    try:
        _check_type(call.header(b"content-type"))
        _check_encoding(call.header(b"content-encoding"))
        told = _told_length(call.header(b"content-length"))
        if not exchange.more_body and told <= SMALL_BYTES and not call.gone:
            # As most are: here by now, so that nothing is to be waited for.
            return _counted(exchange.take(), portion)
        return await within(seconds_max, _collect(call, exchange, portion, check_limits, told))
    except TimeoutError as error:
        message = f"The body did not arrive within {seconds_max:g} s."
        raise Refusal(408, "request_timeout", message) from error
    finally:
        call.spans.add(BODY, began)


async def _collect(
    call: Call, exchange: Incoming, portion: Portion, check_limits: LimitsCheck, told: int
) -> bytes:
    parts: list[bytes] = []
    while True:
        if max(told, portion.size) > SMALL_BYTES:
            await check_limits()
        part = await exchange.more()
        if call.gone:
            raise ClientGone
        parts.append(_counted(part, portion))
        if not exchange.more_body:
            return parts[0] if len(parts) == 1 else b"".join(parts)


def _counted(part: bytes, portion: Portion) -> bytes:
    fits = portion.grow(len(part))
    if portion.size > BODY_BYTES_MAX:
        raise too_large()
    if not fits:
        raise no_room(portion)
    return part


def _check_type(header: str | None) -> None:
    """Return for JSON, and for a body that is not said to be anything."""
    if not header or header.partition(";")[0].strip().lower() == "application/json":
        return
    message = f"Content-Type '{header[:TYPE_CHARS_MAX]}' is not accepted; send application/json."
    raise Refusal(415, "unsupported_content_type", message, param="content-type", headers=NO_RETRY)


def _check_encoding(header: str | None) -> None:
    if header not in (None, "identity"):
        message = f"Content-Encoding '{header}' is not accepted; send the body as it is."
        raise Refusal(415, "unsupported_encoding", message, headers=NO_RETRY)


def _told_length(header: str | None) -> int:
    """0 where nothing is told."""
    if header is None:
        return 0
    if not header.isdecimal():
        raise bad_field("content-length", "The Content-Length header is not a number.")
    length = int(header)
    if length > BODY_BYTES_MAX:
        raise too_large()
    return length


def too_large() -> Refusal:
    """413 with the bound in its text."""
    message = f"The body is larger than {BODY_BYTES_MAX} bytes."
    return Refusal(413, "request_too_large", message, headers=NO_RETRY)


def no_room(portion: Portion) -> Refusal:
    """429 or 503."""
    if portion.is_over_share:
        return over_share("large bodies", retry_after_s=RETRY_S)
    message = f"Too many large request bodies are in progress. Try again in {RETRY_S} s."
    return unavailable("server_is_overloaded", message, retry_after_s=RETRY_S)
