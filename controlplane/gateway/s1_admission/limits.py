"""All limits but money: counted here, shared by all gateways through the Limiter port."""

from collections.abc import Sequence
from math import ceil

from msgspec import structs

from controlplane.gateway.ask import Ask
from controlplane.gateway.call import Call
from controlplane.gateway.plan import RoutePlan
from controlplane.gateway.ports import Allowance, Dimension, Limiter
from controlplane.gateway.refusal import Refusal
from controlplane.gateway.snapshot import NO_LIMITS, KeyRecord, Snapshot
from controlplane.kernel.limits import ReachedLimit
from controlplane.kernel.spans import INDEX
from inference.contract.frames import BYTES_PER_TOKEN

LIMITS = INDEX["s1_admission.limits"]
# Sooner is not worth a try, and what Redis tells is rounded.
RETRY_WAIT_S_MIN = 0.1
RETRY_WAIT_S_MAX = 120
_MS_PER_S = 1000
# The error's type, and the limit in words.
_KINDS: dict[Dimension, tuple[str, str]] = {
    "requests": ("requests", "requests per minute"),
    "tokens": ("tokens", "tokens per minute"),
    "requests-day": ("requests", "requests per day"),
    "concurrency": ("concurrency", "concurrent requests"),
}


def estimate_tokens(body_bytes: int, output_tokens: int) -> int:
    """What a request is assumed to use of the token limit until its usage is known."""
    return body_bytes // BYTES_PER_TOKEN + output_tokens


def counted_key(key: KeyRecord, ask: Ask, plan: RoutePlan, snapshot: Snapshot) -> KeyRecord:
    """The key, with the models and the end user of its request where limits of either are set.

    Of a client's own list all models count, whichever serves.
    """
    project = snapshot.projects[key.project].limits
    organization = snapshot.organizations.get(key.organization, NO_LIMITS)
    for limits in (key.limits, project, organization):
        if limits.per_user is not None or limits.models:
            steps = plan.steps if plan.listed else plan.steps[:1]
            models = tuple(dict.fromkeys(step.model.name for step in steps))
            return structs.replace(key, counted=(models, ask.user))
    return key


async def take_limits(call: Call, key: KeyRecord, limiter: Limiter, *, tokens: int) -> Allowance:
    """Count the request; raises `Refusal` (429) when a limit is reached."""
    began = call.spans.clock()
    try:
        allowance = await limiter.take(key, tokens)
    finally:
        call.spans.add(LIMITS, began)
    if not allowance.allowed:
        raise _over_limit(allowance, tokens, key.counted[0] if key.counted else ())
    return allowance


async def check_requests(key: KeyRecord, limiter: Limiter) -> None:
    """Return while the key has a request left; counts nothing. Raises `Refusal` (429)."""
    rooms = await limiter.look(key)
    for room in rooms:
        if room.dimension in ("requests", "requests-day") and room.remaining < 1:
            wait_s = room.reset_s / room.limit
            allowance = Allowance(allowed=False, rooms=rooms, refused_by=room, retry_after_s=wait_s)
            raise _over_limit(allowance, 0)


async def count_request(key: KeyRecord, limiter: Limiter) -> None:
    """Count a request that ended before its limits were asked."""
    allowance = await limiter.take(key, 0)
    if allowance.allowed:
        limiter.release(allowance)


def limit_lines(allowance: Allowance) -> list[str]:
    """The `x-ratelimit-*` headers, in OpenAI's names and duration format."""
    lines = []
    for room in allowance.rooms:
        what = room.dimension
        lines.append(f"x-ratelimit-limit-{what}: {room.limit}")
        lines.append(f"x-ratelimit-remaining-{what}: {room.remaining}")
        if what != "concurrency":
            lines.append(f"x-ratelimit-reset-{what}: {duration_text(room.reset_s)}")
    return lines


def duration_text(seconds: float) -> str:
    """A duration as OpenAI writes it: 12ms, 1s, 6m0s, 23h59m0s."""
    if seconds < 1:
        return f"{max(0, round(seconds * _MS_PER_S))}ms"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes}m{rest}s"
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"


def _over_limit(allowance: Allowance, tokens: int, models: Sequence[str] = ()) -> Refusal:
    room, wait_s = allowance.refused_by, max(RETRY_WAIT_S_MIN, allowance.retry_after_s)
    again = f"Try again in {duration_text(wait_s)}."
    if room is None:
        kind, message = "requests", f"Rate limits are temporarily unavailable. {again}"
    else:
        kind, what = _KINDS[room.dimension]
        named = " or ".join(f"'{model}'" for model in models)
        whose = {"user": "end user", "model": f"model {named}"}.get(room.scope, room.scope)
        message = f"Rate limit reached: {room.limit} {what} for this {whose}. {again}"
    headers = [
        ("retry-after", str(max(1, ceil(wait_s)))),
        ("retry-after-ms", str(ceil(wait_s * _MS_PER_S))),
    ]
    if wait_s > RETRY_WAIT_S_MAX:
        headers.append(("x-should-retry", "false"))
    for name, _, value in [line.partition(": ") for line in limit_lines(allowance)]:
        headers.append((name, value))
    refusal = Refusal(429, "rate_limit_exceeded", message, kind=kind, headers=tuple(headers))
    refusal.limit, refusal.rooms = _reached(allowance, tokens, wait_s), allowance.rooms
    return refusal


def _reached(allowance: Allowance, tokens: int, wait_s: float) -> ReachedLimit:
    room, wait_ms = allowance.refused_by, ceil(wait_s * _MS_PER_S)
    if room is None:
        return ReachedLimit(kind="uncounted", retry_after_ms=wait_ms)
    timed = room.dimension != "concurrency"
    return ReachedLimit(
        kind=room.dimension,
        scope=room.scope,
        limit=room.limit,
        asked=tokens if room.dimension == "tokens" else None,
        # Nobody knows when those under way will end.
        retry_after_ms=wait_ms if timed else None,
        reset_ms=round(room.reset_s * _MS_PER_S) if timed else None,
    )
