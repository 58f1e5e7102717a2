"""The answer while the service is degraded: what is wrong, what was tried, when to come back."""

import random
from collections.abc import Sequence
from math import ceil

import msgspec

from controlplane.gateway.refusal import NODE_RETRY_S, Refusal, unavailable
from controlplane.gateway.s4_route.queue.request import NoRoom
from controlplane.kernel.receipt import PassedStep

# Clients of OpenAI's API believe no wait beyond a minute.
RETRY_S_MIN, RETRY_S_MAX = 1.0, 60.0
# Those who are refused together should not come back together.
JITTER = 0.3
MS_PER_S = 1000
_SAYS = {
    "full": "the queue is full",
    "late": "the wait for a free node would be too long",
    "none": "no node of this model remains",
    "failed": "the nodes that took the request failed",
    "shed": "requests of this priority are shed while an objective is at risk",
}


class Degraded(msgspec.Struct, frozen=True, kw_only=True):
    """The structured part. `state` is `overloaded`, or `unavailable` where no node serves at all.

    `reason` is `full` (queue), `late` (wait), `none` (no node), `failed` (every attempt) or `shed`
    (its priority, to keep an objective). Beside it stand the `steps` of the route that were tried,
    each with why it could not serve.
    """

    state: str
    reason: str
    estimated_wait_ms: int | None
    queue_position: int
    retry_after_ms: int


def overloaded(no_room: NoRoom) -> Refusal:
    """503: a step of the route had no room."""
    message = f"The service is overloaded: {_SAYS[no_room.reason]}. Nothing was charged."
    state = "unavailable" if no_room.reason == "none" else "overloaded"
    retry_ms = _retry_ms(no_room)
    back_s = ceil(retry_ms / MS_PER_S)
    if no_room.reason == "shed":
        refusal = unavailable("shed_for_objective", message, retry_after_s=back_s)
    else:
        refusal = unavailable("server_is_overloaded", message, retry_after_s=back_s)
    return _told(refusal, state, no_room, retry_ms)


def with_steps(lack: Refusal, steps: Sequence[PassedStep]) -> Refusal:
    """The last step's lack as the answer, with all steps that were tried."""
    if lack.degraded is None:
        no_room = NoRoom("none")
        retry_ms = _retry_ms(no_room)
        again = unavailable(lack.code or "", lack.message, retry_after_s=ceil(retry_ms / MS_PER_S))
        lack = _told(again, "unavailable", no_room, retry_ms)
    lack.degraded = {
        **(lack.degraded or {}),
        "steps": [msgspec.structs.asdict(step) for step in steps],
    }
    return lack


def reason_of(refusal: Refusal) -> str:
    """Why a step could not serve: what it lacked, a refusal's code, or the field at fault."""
    if refusal.degraded is not None:
        return str(refusal.degraded["reason"])
    return refusal.code or refusal.param or ""


def _told(refusal: Refusal, state: str, no_room: NoRoom, retry_ms: int) -> Refusal:
    refusal.headers += (("retry-after-ms", str(retry_ms)), ("x-should-retry", "true"))
    refusal.degraded = msgspec.structs.asdict(
        Degraded(
            state=state,
            reason=no_room.reason,
            estimated_wait_ms=None if no_room.wait_s is None else round(no_room.wait_s * MS_PER_S),
            queue_position=no_room.position,
            retry_after_ms=retry_ms,
        )
    )
    return refusal


def _retry_ms(no_room: NoRoom) -> int:
    back_s = NODE_RETRY_S if no_room.wait_s is None else no_room.wait_s
    bounded_s = min(RETRY_S_MAX / (1 + JITTER), max(RETRY_S_MIN, back_s))
    return round(bounded_s * random.uniform(1.0, 1.0 + JITTER) * MS_PER_S)
