"""When every node is full: wait for one's turn, within bounds, or hear at once that it is no use.

The order is the queue's (`s4_route/queue`); here is the event loop around it. A credit that comes
back is promised to one request, which alone may take it; who takes another node's instead leaves it
to the next.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Protocol

from controlplane.gateway.call import Call, ClientGone
from controlplane.gateway.nodes.link import NodeLink
from controlplane.gateway.s4_route.queue.queue import FairQueue, LineKey, QueueKind, WaitingDepth
from controlplane.gateway.s4_route.queue.request import NoRoom, QueuedRequest, QueueEntry, QueueLane
from controlplane.kernel.clock import monotonic_s
from controlplane.kernel.spans import INDEX

SATURATION = INDEX["s4_route.saturation"]
# Nodes that open up by the clock alone send no news of it.
LOOK_AGAIN_S = 1.0
MS_PER_S = 1000

Nodes = tuple[NodeLink, ...]
Turn = NodeLink | NoRoom | None


class CreditSource(Protocol):
    """What tells that a node has a credit again, or that nodes changed."""

    on_credit: list[Callable[[NodeLink], None]]
    on_change: list[Callable[[], None]]


class Waiter:
    """One request in the room: its ticket, and the turn that it waits for.

    A turn is a node that has a credit, `promised` to it; or why there will be none; or None, when
    its client has left. `expired`: its wait is over, whatever becomes of a promise.
    """

    __slots__ = ("expired", "promised", "ticket", "turn")

    def __init__(self, ticket: QueueEntry) -> None:
        self.ticket = ticket
        self.promised: NodeLink | None = None
        self.expired = False
        self.await_turn()

    def await_turn(self) -> None:
        """Wait for the first turn, or for another."""
        self.turn: asyncio.Future[Turn] = asyncio.get_running_loop().create_future()


class Reach:
    """Which nodes can serve which of the lanes in which somebody waits."""

    def __init__(self) -> None:
        self._nodes: dict[QueueLane, Callable[[], Nodes]] = {}
        self._links: dict[QueueLane, Nodes] = {}
        self._lanes: dict[NodeLink, dict[QueueLane, None]] = {}

    def open(self, lane: QueueLane, nodes: Callable[[], Nodes]) -> None:
        if lane not in self._nodes:
            self._nodes[lane] = nodes
            self._spread(lane)

    def close(self, lane: QueueLane) -> None:
        if self._nodes.pop(lane, None) is not None:
            for link in self._links.pop(lane):
                self.cut(lane, link)

    def cut(self, lane: QueueLane, link: NodeLink) -> None:
        """This node does not serve this lane, until nodes are looked at again."""
        lanes = self._lanes.get(link, {})
        lanes.pop(lane, None)
        if not lanes:
            self._lanes.pop(link, None)

    def look(self) -> list[QueueLane]:
        """Ask anew which nodes there are; lanes that have none left."""
        self._lanes.clear()
        for lane in self._nodes:
            self._spread(lane)
        return [lane for lane, links in self._links.items() if not links]

    def lanes(self, link: NodeLink) -> list[QueueLane]:
        return list(self._lanes.get(link, ()))

    def links(self) -> list[NodeLink]:
        return list(self._lanes)

    def _spread(self, lane: QueueLane) -> None:
        links = self._links[lane] = self._nodes[lane]()
        for link in links:
            self._lanes.setdefault(link, {})[lane] = None


class WaitingRoom:
    """Requests that wait for a credit of a node that can serve them."""

    def __init__(self, source: CreditSource) -> None:
        self._queue = FairQueue()
        self._reach = Reach()
        self._waiters: dict[QueueEntry, Waiter] = {}
        self._promised: Counter[NodeLink] = Counter()
        self._timer: asyncio.TimerHandle | None = None
        source.on_credit.append(self._offer)
        source.on_change.append(self._look)

    def __len__(self) -> int:
        return len(self._queue)

    def depths(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for (model, _, _), depth in self.kinds().items():
            found[model] += depth.waiting
        return found

    def pools(self) -> Counter[str]:
        """How many wait, by the pool whose nodes they wait for."""
        return self._queue.pools()

    def kinds(self) -> dict[QueueKind, WaitingDepth]:
        """How many wait, and since when, by model, priority and tenant."""
        return self._queue.depths(monotonic_s())

    async def roomy(
        self, call: Call, lane: QueueLane, nodes: Callable[[], Nodes], *, claim: QueuedRequest
    ) -> Nodes:
        """Nodes of which one takes a job now, waiting for it if need be; `lane` stands for `nodes`.

        Full ones are among them, since a decision looks at all together. A credit of theirs is the
        caller's as long as it dispatches without another await. Raises `NoRoom`, or `ClientGone`.
        """
        began = call.spans.clock()
        try:
            if not self._queue.waiting(lane) and (free := self._free(nodes())):
                self._queue.passes(lane[:3], claim)
                return free
            return await self._wait(call, lane, nodes, claim)
        finally:
            call.spans.add(SATURATION, began)

    def pass_by(self, call: Call, line: LineKey, nodes: Nodes, claim: QueuedRequest) -> Nodes:
        """The nodes, if one takes a job now and nobody waits for any; else none."""
        began = call.spans.clock()
        free: Nodes = ()
        if not self._queue and (free := self._free(nodes)):
            self._queue.passes(line, claim)
        call.spans.add(SATURATION, began)
        return free

    async def _wait(
        self, call: Call, lane: QueueLane, nodes: Callable[[], Nodes], claim: QueuedRequest
    ) -> Nodes:
        if call.gone:
            raise ClientGone
        if not nodes():
            raise NoRoom("none")
        ticket = self._enter(lane, claim)
        waiter = self._waiters[ticket] = Waiter(ticket)
        call.on_gone = lambda: self._tell(waiter, None)
        expiry = asyncio.get_running_loop().call_later(claim.patience_s, self._expire, waiter)
        self._reach.open(lane, nodes)
        for link in self._free(nodes()):
            self._offer(link)
        self._look_later()
        try:
            return await self._turn(call, waiter, nodes)
        finally:
            expiry.cancel()
            call.on_gone = None
            self._leave(waiter)
            waited_ms = round((monotonic_s() - ticket.entered_s) * MS_PER_S)
            call.note_queued(waited_ms, ticket.position, ticket.wait_s)

    def _enter(self, lane: QueueLane, claim: QueuedRequest) -> QueueEntry:
        ticket, evicted = self._queue.enter(lane, claim, monotonic_s())
        for each in evicted:
            self._tell(self._waiters[each], NoRoom("full", each.wait_s, each.position))
        return ticket

    async def _turn(self, call: Call, waiter: Waiter, nodes: Callable[[], Nodes]) -> Nodes:
        while True:
            turn = await waiter.turn
            if turn is None or call.gone:
                raise ClientGone
            if isinstance(turn, NoRoom):
                raise turn
            self._redeem(waiter)
            here = nodes()
            if free := self._free(here):
                return free
            if not here:
                raise NoRoom("none")
            # Its credit is gone: the place in the queue is kept.
            if turn not in here:
                self._reach.cut(waiter.ticket.lane, turn)
            self._queue.put_back(waiter.ticket)
            waiter.await_turn()
            if waiter.expired:
                self._expire(waiter)

    def _leave(self, waiter: Waiter) -> None:
        """However it ended: no place, no promise and no lane is left behind."""
        if waiter.promised is not None:
            # Not redeemed, so nothing was served.
            self._redeem(waiter)
            self._queue.put_back(waiter.ticket)
        self._queue.leave(waiter.ticket)
        del self._waiters[waiter.ticket]
        if not self._queue.waiting(waiter.ticket.lane):
            self._reach.close(waiter.ticket.lane)

    def _redeem(self, waiter: Waiter) -> None:
        link = waiter.promised
        waiter.promised = None
        if link is None:
            return
        self._promised[link] -= 1
        if not self._promised[link]:
            del self._promised[link]
        # Once the dispatch is done, which follows at once: it may have been to another node.
        asyncio.get_running_loop().call_soon(self._offer, link)

    def _offer(self, link: NodeLink) -> None:
        """Promise a node's free credits to those whose turn it is."""
        lanes = self._reach.lanes(link)
        while lanes and self._room(link) > 0:
            ticket = self._queue.next(lanes, monotonic_s())
            if ticket is None:
                return
            waiter = self._waiters[ticket]
            if waiter.turn.done():
                # Its task was cancelled a moment ago.
                self._queue.put_back(ticket)
                self._queue.leave(ticket)
                continue
            waiter.promised = link
            self._promised[link] += 1
            waiter.turn.set_result(link)

    def _tell(self, waiter: Waiter, turn: Turn) -> None:
        """There will be no room for it, unless it has been promised some already."""
        if not waiter.turn.done():
            self._queue.leave(waiter.ticket)
            waiter.turn.set_result(turn)

    def _expire(self, waiter: Waiter) -> None:
        waiter.expired = True
        if waiter.turn.done():
            return
        ticket = waiter.ticket
        self._queue.leave(ticket)
        # What it would meet if it came back at once.
        position, wait_s = self._queue.estimate(ticket.lane, ticket.claim, monotonic_s())
        self._tell(waiter, NoRoom("late", wait_s, position))

    def _look(self) -> None:
        """Nodes have changed: whoever has none left is told, all others may have more."""
        lost = set(self._reach.look())
        for waiter in list(self._waiters.values()):
            if waiter.ticket.lane in lost:
                self._tell(waiter, NoRoom("none"))
        for link in self._reach.links():
            self._offer(link)

    def _look_later(self) -> None:
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(LOOK_AGAIN_S, self._look_again)

    def _look_again(self) -> None:
        self._timer = None
        if self._waiters:
            self._look()
            self._look_later()

    def _free(self, nodes: Nodes) -> Nodes:
        """The nodes as they are, if one of them takes a job now, else none; without those whose
        last credits are promised.
        """
        if self._promised:
            promised = {link for link in self._promised if self._room(link) <= 0}
            if not promised.isdisjoint(nodes):
                nodes = tuple([link for link in nodes if link not in promised])
        for link in nodes:
            if self._room(link) > 0:
                return nodes
        return ()

    def _room(self, link: NodeLink) -> int:
        """Credits of a node that nobody has been promised."""
        if not link.takes_jobs:
            return 0
        return link.account.credits_left - self._promised.get(link, 0)
