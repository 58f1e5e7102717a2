"""When every node is full: wait for a credit, within bounds, or shed at once and say so."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from itertools import count
from typing import Protocol

from controlplane.gateway.call import Call, ClientGone
from controlplane.gateway.nodes.link import NodeLink
from controlplane.gateway.refusal import Refusal, unavailable
from controlplane.kernel.spans import INDEX

SATURATION = INDEX["s4_route.saturation"]
WAITING_MAX = 1024
WAIT_S_MAX = 30.0
SHED_RETRY_S = 5

Nodes = tuple[NodeLink, ...]


class CreditSource(Protocol):
    """What tells that a credit came back, or that nodes changed."""

    on_credit: list[Callable[[], None]]
    on_change: list[Callable[[], None]]


class Waiter:
    """One request in the room."""

    __slots__ = ("_turn", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self._turn: asyncio.Future[None] | None = None

    @property
    def asleep(self) -> bool:
        """It has not been told yet to look again."""
        return self._turn is not None and not self._turn.done()

    async def turn(self) -> None:
        """Wait to be woken; the place in the room is kept."""
        self._turn = asyncio.get_running_loop().create_future()
        try:
            await self._turn
        finally:
            self._turn = None

    def wake(self) -> None:
        """Let it look again."""
        if self._turn is not None and not self._turn.done():
            self._turn.set_result(None)


class Queue:
    """Requests that the same nodes can serve, in order of arrival."""

    __slots__ = ("nodes", "waiters")

    def __init__(self, nodes: Callable[[], Nodes]) -> None:
        self.nodes = nodes
        self.waiters: dict[Waiter, None] = {}

    def next_asleep(self) -> Waiter | None:
        """The first that has not been told to look again."""
        return next((waiter for waiter in self.waiters if waiter.asleep), None)


class WaitingRoom:
    """Requests that wait for a credit: first come first served among those a node can serve.

    One model's full nodes hold up nobody who waits for another's.
    """

    def __init__(self, source: CreditSource) -> None:
        self._queues: dict[tuple[str, ...], Queue] = {}
        self._numbers = count()
        source.on_credit.append(self._wake_next)
        source.on_change.append(self._wake_all)

    def __len__(self) -> int:
        return sum(len(queue.waiters) for queue in self._queues.values())

    def depths(self) -> Counter[str]:
        """How many wait, by model."""
        found: Counter[str] = Counter()
        for key, queue in self._queues.items():
            found[key[0]] += len(queue.waiters)
        return found

    async def roomy(self, call: Call, key: tuple[str, ...], nodes: Callable[[], Nodes]) -> Nodes:
        """Nodes that take a job now, waiting for one if need be.

        `key` stands for `nodes`; its first item is the model. Raises `Refusal` (503) when the room
        is full, the wait is over or no node is left.
        """
        began = call.spans.clock()
        try:
            if key not in self._queues and (free := _with_credit(nodes())):
                return free
            return await self._wait_for_room(call, key, nodes)
        finally:
            call.spans.add(SATURATION, began)

    async def _wait_for_room(
        self, call: Call, key: tuple[str, ...], nodes: Callable[[], Nodes]
    ) -> Nodes:
        if not nodes():
            raise overloaded("no node of this model is left")
        if len(self) >= WAITING_MAX:
            raise overloaded("the queue is full")
        waiter = Waiter(next(self._numbers))
        queue = self._queues.setdefault(key, Queue(nodes))
        queue.waiters[waiter] = None
        call.on_gone = waiter.wake
        try:
            async with asyncio.timeout(WAIT_S_MAX):
                return await _until_free(call, waiter, nodes)
        except TimeoutError as error:
            raise overloaded(f"no node had room within {WAIT_S_MAX:.0f} s") from error
        finally:
            call.on_gone = None
            del queue.waiters[waiter]
            if not queue.waiters:
                del self._queues[key]
            # Its turn may have been for a credit that it did not take, or for one of several.
            self._wake_next()

    def _wake_next(self) -> None:
        """Tell the one who has waited longest among those whose nodes have room."""
        heads = [
            head
            for queue in self._queues.values()
            if (head := queue.next_asleep()) is not None and _with_credit(queue.nodes())
        ]
        if heads:
            min(heads, key=lambda head: head.number).wake()

    def _wake_all(self) -> None:
        for queue in self._queues.values():
            for waiter in queue.waiters:
                waiter.wake()


def overloaded(reason: str) -> Refusal:
    """503 with a time to come back."""
    return unavailable(
        "server_is_overloaded",
        f"The service is overloaded: {reason}. Nothing was charged.",
        retry_after_s=SHED_RETRY_S,
    )


async def _until_free(call: Call, waiter: Waiter, nodes: Callable[[], Nodes]) -> Nodes:
    while not call.gone:
        await waiter.turn()
        here = nodes()
        if not here:
            raise overloaded("no node of this model is left")
        if (free := _with_credit(here)) and not call.gone:
            return free
    raise ClientGone


def _with_credit(nodes: Nodes) -> Nodes:
    return tuple(link for link in nodes if link.takes_jobs and link.account.credits_left > 0)
