"""Requests and tokens per minute: counted here, shared by all gateways through the Limiter port."""

from __future__ import annotations

from math import ceil

from controlplane.gateway.call import Call
from controlplane.gateway.ports import Allowance, Limiter
from controlplane.gateway.refusal import Refusal
from controlplane.gateway.snapshot import KeyRecord
from controlplane.kernel.spans import INDEX
from inference.contract.frames import BYTES_PER_TOKEN

LIMITS = INDEX["s1_admission.limits"]
RETRY_WAIT_S_MAX = 120
_MS_PER_S = 1000


def estimate_tokens(body_bytes: int, output_tokens: int) -> int:
    """What a request is assumed to use of the token limit until its usage is known."""
    return body_bytes // BYTES_PER_TOKEN + output_tokens


async def take_limits(call: Call, key: KeyRecord, limiter: Limiter, *, tokens: int) -> Allowance:
    """Count the request; raises `Refusal` (429) when a limit is reached."""
    began = call.spans.clock()
    try:
        allowance = await limiter.take(key, tokens)
    finally:
        call.spans.add(LIMITS, began)
    if not allowance.allowed:
        raise _over_limit(allowance)
    return allowance


def limit_headers(allowance: Allowance) -> list[tuple[bytes, bytes]]:
    """The `x-ratelimit-*` headers, in OpenAI's names and duration format."""
    headers = []
    for what in ("requests", "tokens"):
        limit = getattr(allowance, f"limit_{what}")
        if limit is None:
            continue
        remaining = max(0, getattr(allowance, f"remaining_{what}") or 0)
        reset = duration_text(getattr(allowance, f"reset_{what}_s"))
        headers.append((f"x-ratelimit-limit-{what}".encode(), str(limit).encode()))
        headers.append((f"x-ratelimit-remaining-{what}".encode(), str(remaining).encode()))
        headers.append((f"x-ratelimit-reset-{what}".encode(), reset.encode()))
    return headers


def duration_text(seconds: float) -> str:
    """A duration as OpenAI writes it: 12ms, 1s, 6m0s."""
    if seconds < 1:
        return f"{max(0, round(seconds * _MS_PER_S))}ms"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"


def _over_limit(allowance: Allowance) -> Refusal:
    what = allowance.dimension or "requests"
    limit = allowance.limit_tokens if what == "tokens" else allowance.limit_requests
    wait_s = allowance.retry_after_s
    headers = [
        ("retry-after", str(max(1, ceil(wait_s)))),
        ("retry-after-ms", str(max(1, ceil(wait_s * _MS_PER_S)))),
    ]
    if wait_s > RETRY_WAIT_S_MAX:
        headers.append(("x-should-retry", "false"))
    headers += [(name.decode(), value.decode()) for name, value in limit_headers(allowance)]
    return Refusal(
        429,
        "rate_limit_exceeded",
        f"Rate limit reached: {limit} {what} per minute. Try again in {duration_text(wait_s)}.",
        kind=what,
        headers=tuple(headers),
    )
