"""All that waits for one model in one pool and region: its lanes, its tenants' shares, its pace;
and how fast credits come back while requests wait for them, and so how long a wait will be.
"""

from collections.abc import Iterator

from controlplane.gateway.s4_route.queue.request import QueuedRequest, QueueEntry, QueueLane
from controlplane.gateway.s4_route.queue.shares import QueueHead, Shares, Turns
from controlplane.kernel.rules import PRIORITIES

RETURN_WEIGHT = 1 / 32
RETURNS_MIN = 8
RETURNS_AGE_S_MAX = 300.0
SECONDS_MIN = 1e-6
# A class that others went before this often goes next: one turn in sixteen is guaranteed to it.
PASSED_OVER_MAX = 15


class ReleaseRate:
    """Turns per second: decayed sums over the last few dozen, so that no clock scale is assumed.

    Only time in which somebody waited counts: else it would measure demand, not capacity.
    """

    __slots__ = ("_count", "_last_s", "_samples", "_seconds")

    def __init__(self) -> None:
        self._count = self._seconds = self._last_s = 0.0
        self._samples = 0

    def began(self, now_s: float) -> None:
        """The first request waits; what was measured long ago says nothing any more."""
        if now_s - self._last_s > RETURNS_AGE_S_MAX:
            self._count = self._seconds = 0.0
            self._samples = 0
        self._last_s = now_s

    def returned(self, now_s: float) -> None:
        kept = 1.0 - RETURN_WEIGHT
        self._count = self._count * kept + 1.0
        self._seconds = self._seconds * kept + max(0.0, now_s - self._last_s)
        self._last_s = now_s
        self._samples += 1

    def wait_s(self, turns: int, now_s: float, *, waiting: bool) -> float | None:
        """Seconds until so many turns; None until enough was measured to refuse anyone for it.

        While requests wait, silence since the last turn counts too: a fleet that has stopped
        answering gets slower by the second.
        """
        if self._samples < RETURNS_MIN:
            return None
        silent_s = max(0.0, now_s - self._last_s) if waiting else 0.0
        return turns * max(SECONDS_MIN, self._seconds + silent_s) / self._count


class ModelQueue:
    """Its lanes differ in what else they need of a node, so they share tenants' tags and pace.

    `served` is the number of the turn that it had last.
    """

    __slots__ = ("_lanes", "_passed_over", "_shares", "returns", "served")

    def __init__(self) -> None:
        self._lanes: dict[QueueLane, tuple[Turns, ...]] = {}
        self._shares = tuple(Shares() for _ in PRIORITIES)
        self._passed_over = [0 for _ in PRIORITIES]
        self.returns = ReleaseRate()
        self.served = 0

    def __len__(self) -> int:
        return sum(turns.count for lane in self._lanes.values() for turns in lane)

    def waiting(self, lane: QueueLane) -> int:
        return sum(turns.count for turns in self._lanes.get(lane, ()))

    def add(self, ticket: QueueEntry, *, first: bool = False) -> None:
        lane = self._lanes.get(ticket.lane)
        if lane is None:
            lane = self._lanes[ticket.lane] = tuple(Turns(shares) for shares in self._shares)
        lane[ticket.claim.priority].add(ticket, first=first)

    def remove(self, ticket: QueueEntry) -> None:
        priority = ticket.claim.priority
        lane = self._lanes[ticket.lane]
        lane[priority].remove(ticket)
        if not any(turns.count for turns in lane):
            del self._lanes[ticket.lane]
        if not any(each[priority].count for each in self._lanes.values()):
            self._passed_over[priority] = 0

    def heads(self, lane: QueueLane) -> Iterator[tuple[bool, QueueHead]]:
        """Who could go next in a lane, by class; True where its class was passed over too often."""
        for priority, turns in enumerate(self._lanes.get(lane, ())):
            if (head := turns.head()) is not None:
                yield self._passed_over[priority] >= PASSED_OVER_MAX, head

    def had_turn(self, priority: int) -> None:
        self._passed_over[priority] = 0

    def pass_over(self, priority: int) -> None:
        """One of a class could have gone, and one of a higher class went."""
        self._passed_over[priority] += 1

    def charge(self, claim: QueuedRequest) -> float:
        return self._shares[claim.priority].charge(claim)

    def refund(self, claim: QueuedRequest) -> None:
        self._shares[claim.priority].refund(claim)

    def position(self, claim: QueuedRequest) -> int:
        """How many would go before a request that came now, as things stand."""
        start, priority = self._start(claim), claim.priority
        return sum(
            lane[priority].before(claim.tenant, start)
            + sum(turns.count for turns in lane[priority + 1 :])
            for lane in self._lanes.values()
        )

    def lesser_before(self, claim: QueuedRequest) -> list[QueueEntry]:
        """Those who would go before such a request though they rank lower, lowest and newest first.

        Within its class that is those of routes which degrade sooner.
        """
        start = self._start(claim)
        found = [
            ticket
            for lane in self._lanes.values()
            for ticket, tag in lane[claim.priority].tagged()
            if ticket.claim.rank < claim.rank and tag <= start
        ]
        return sorted(found, key=lambda ticket: (ticket.claim.rank, -ticket.number))

    def wait_s(self, position: int, now_s: float) -> float | None:
        """How long a request waits that has so many before it; None while nothing is measured."""
        return self.returns.wait_s(position + 1, now_s, waiting=bool(self))

    def in_time(self, position: int, claim: QueuedRequest, now_s: float) -> bool:
        """Whether that wait is of use; what is not known refuses nobody."""
        wait_s = self.wait_s(position, now_s)
        return wait_s is None or wait_s <= claim.patience_s

    def _start(self, claim: QueuedRequest) -> float:
        """The start tag that a request would have, behind all its tenant's others."""
        shares = self._shares[claim.priority]
        own = sum(lane[claim.priority].charge(claim.tenant) for lane in self._lanes.values())
        return shares.start(claim.tenant, shares.now) + own
