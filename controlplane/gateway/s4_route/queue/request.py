"""What a request that may have to wait says of itself, and how it is told that it cannot."""

from typing import Literal, NamedTuple

import msgspec

from controlplane.kernel.rules import PRIORITY_NORMAL

NoRoomReason = Literal["full", "late", "none", "failed", "shed"]


class QueueLane(NamedTuple):
    """Requests of one lane can be served by exactly the same nodes.

    `needs` is all that decides this beside model, pool and region.
    """

    model: str
    pool: str
    region: str
    needs: tuple[str, ...] = ()


class QueuedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Whose request it is, what it may displace and what may displace it.

    `work_tokens` estimates what it costs a node; a tenant's work counts divided by `weight`.
    Within a priority, a lower `degrade_order` is shed first; None last. It waits at most `queue_s`
    and what is left of its time, `deadline_s`.
    """

    tenant: str
    weight: int = 1
    priority: int = PRIORITY_NORMAL
    degrade_order: int | None = None
    work_tokens: int
    queue_s: float
    deadline_s: float

    @property
    def patience_s(self) -> float:
        return min(self.queue_s, self.deadline_s)

    @property
    def charge(self) -> float:
        """How far its tenant's turn moves back."""
        return max(1, self.work_tokens) / self.weight

    @property
    def rank(self) -> tuple[int, float]:
        order = float("inf") if self.degrade_order is None else float(self.degrade_order)
        return self.priority, order


class NoRoom(Exception):
    """No node took the request: the queue is `full`, the wait too long (`late`), no node is left
    (`none`), those that took it `failed`, or its priority is `shed`.

    `wait_s` is the wait as estimated, None where nothing was measured yet; `position` is how many
    were before it.
    """

    def __init__(
        self, reason: NoRoomReason, wait_s: float | None = None, position: int = 0
    ) -> None:
        super().__init__(reason)
        self.reason: NoRoomReason = reason
        self.wait_s = wait_s
        self.position = position


class QueueEntry(msgspec.Struct, eq=False):
    """One request in the queue; `position` and `wait_s` are those of its arrival."""

    lane: QueueLane
    claim: QueuedRequest
    number: int
    entered_s: float
    position: int
    wait_s: float | None
    start: float = 0.0
    waiting: bool = False
