"""The queue of one gateway: who may wait, whose turn it is, and who is shed.

Priority first, but a class that was passed over fifteen times goes next; in a class tenants share
by weighted work (`shares.py`); a tenant's requests go in order of arrival. A request whose wait, as
measured, would be longer than is of use is refused at once, unless routes that degrade sooner can
make way for it.
"""

from collections import Counter
from collections.abc import Iterable
from itertools import count
from typing import NamedTuple

from controlplane.gateway.s4_route.queue.model_queue import ModelQueue
from controlplane.gateway.s4_route.queue.request import NoRoom, QueuedRequest, QueueEntry, QueueLane
from controlplane.gateway.s4_route.queue.shares import QueueHead
from controlplane.gateway.s4_route.queue.waiting import WaitingRequests

LINES_MAX = 1024

LineKey = tuple[str, str, str]
QueueKind = tuple[str, int, str]


class Entered(NamedTuple):
    """A request that waits now, and those that were shed in its favour."""

    ticket: QueueEntry
    evicted: list[QueueEntry]


class WaitingDepth(NamedTuple):
    """How many wait of one kind, and for how long the first of them has."""

    waiting: int
    oldest_s: float


class FairQueue:
    """All requests that wait in one gateway. Every time comes in as `now_s`."""

    def __init__(self) -> None:
        self._lines: dict[LineKey, ModelQueue] = {}
        self._crowd = WaitingRequests()
        self._numbers = count(1)
        self._turns = count(1)

    def __len__(self) -> int:
        return self._crowd.count

    def waiting(self, lane: QueueLane) -> int:
        line = self._lines.get(lane[:3])
        return 0 if line is None else line.waiting(lane)

    def depths(self, now_s: float) -> dict[QueueKind, WaitingDepth]:
        found: dict[QueueKind, WaitingDepth] = {}
        for ticket in self._crowd.tickets():
            kind = (ticket.lane.model, ticket.claim.priority, ticket.claim.tenant)
            before = found.get(kind, WaitingDepth(0, 0.0))
            oldest_s = max(before.oldest_s, now_s - ticket.entered_s)
            found[kind] = WaitingDepth(before.waiting + 1, oldest_s)
        return found

    def pools(self) -> Counter[str]:
        """How many wait for a node of each pool."""
        return Counter(ticket.lane.pool for ticket in self._crowd.tickets())

    def estimate(
        self, lane: QueueLane, claim: QueuedRequest, now_s: float
    ) -> tuple[int, float | None]:
        """How many would go before such a request now, and how long it would wait."""
        line = self._line(lane[:3])
        position = line.position(claim)
        return position, line.wait_s(position, now_s)

    def passes(self, key: LineKey, claim: QueuedRequest) -> None:
        """A request went to a node without waiting: it counts as its tenant's work all the same."""
        line = self._line(key)
        line.charge(claim)
        line.served = next(self._turns)

    def enter(self, lane: QueueLane, claim: QueuedRequest, now_s: float) -> Entered:
        """One more waits; raises `NoRoom` where it had better not."""
        line = self._line(lane[:3])
        position, wait_s = self.estimate(lane, claim, now_s)
        displaced = self._crowd.displaced(claim)
        if displaced is None:
            raise NoRoom("full", wait_s, position)
        hurried = _hurried(line, claim, position, now_s)
        if hurried is None:
            raise NoRoom("late", wait_s, position)
        evicted = list(dict.fromkeys(displaced + hurried))
        for each in evicted:
            self.leave(each)
        if evicted:
            position, wait_s = self.estimate(lane, claim, now_s)
        if not line:
            line.returns.began(now_s)
        ticket = QueueEntry(
            lane,
            claim,
            number=next(self._numbers),
            entered_s=now_s,
            position=position,
            wait_s=wait_s,
        )
        self._add(ticket)
        return Entered(ticket, evicted)

    def next(self, lanes: Iterable[QueueLane], now_s: float) -> QueueEntry | None:
        """Whose turn it is among these lanes, if anyone waits there; it waits no more.

        Lines that share nodes take turns, whoever is first in them.
        """
        found = [
            (line, due, head)
            for lane in lanes
            if (line := self._lines.get(lane[:3])) is not None
            for due, head in line.heads(lane)
        ]
        if not found:
            return None
        chosen, _, head = min(found, key=_order)
        ticket, served = head.ticket, head.ticket.claim.priority
        for line, priority in {(line, head.ticket.claim.priority) for line, _, head in found}:
            if line is chosen and priority == served:
                line.had_turn(priority)
            elif priority < served:
                line.pass_over(priority)
        self.leave(ticket)
        ticket.start = chosen.charge(ticket.claim)
        chosen.returns.returned(now_s)
        chosen.served = next(self._turns)
        return ticket

    def put_back(self, ticket: QueueEntry) -> None:
        """The node had no room after all: the request has its old place again."""
        line = self._line(ticket.lane[:3])
        line.refund(ticket.claim)
        self._add(ticket, first=True)

    def leave(self, ticket: QueueEntry) -> None:
        if not ticket.waiting:
            return
        ticket.waiting = False
        self._crowd.remove(ticket)
        self._lines[ticket.lane[:3]].remove(ticket)

    def _add(self, ticket: QueueEntry, *, first: bool = False) -> None:
        ticket.waiting = True
        self._crowd.add(ticket, first=first)
        self._line(ticket.lane[:3]).add(ticket, first=first)

    def _line(self, key: LineKey) -> ModelQueue:
        line = self._lines.get(key)
        if line is None:
            if len(self._lines) >= LINES_MAX:
                self._lines = {name: each for name, each in self._lines.items() if each}
            line = self._lines[key] = ModelQueue()
        return line


def _order(found: tuple[ModelQueue, bool, QueueHead]) -> tuple[bool, int, int, float, int]:
    line, due, head = found
    return not due, -head.ticket.claim.priority, line.served, head.start, head.number


def _hurried(
    line: ModelQueue, claim: QueuedRequest, position: int, now_s: float
) -> list[QueueEntry] | None:
    """Who must go so that a request's wait is short enough; None if even that is no help."""
    if claim.patience_s <= 0.0:
        return None
    gone: list[QueueEntry] = []
    if line.in_time(position, claim, now_s):
        return gone
    for ticket in line.lesser_before(claim):
        gone.append(ticket)
        if line.in_time(position - len(gone), claim, now_s):
            return gone
    return None
