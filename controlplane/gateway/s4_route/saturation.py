"""When every node is full: wait for a credit, within bounds, or shed at once and say so."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Protocol

from controlplane.gateway.call import Call, ClientGone
from controlplane.gateway.nodes.link import NodeLink
from controlplane.gateway.refusal import Refusal, unavailable
from controlplane.kernel.spans import INDEX

SATURATION = INDEX["s4_route.saturation"]
WAITING_MAX = 1024
WAIT_S_MAX = 30.0
SHED_RETRY_S = 5


class CreditSource(Protocol):
    """What tells that a credit came back, or that nodes changed."""

    on_credit: list[Callable[[], None]]
    on_change: list[Callable[[], None]]


class WaitingRoom:
    """Requests that wait for a credit, first come first served."""

    def __init__(self, source: CreditSource) -> None:
        self._waiters: deque[asyncio.Future[None]] = deque()
        source.on_credit.append(self._wake_one)
        source.on_change.append(self._wake_all)

    def __len__(self) -> int:
        return len(self._waiters)

    async def roomy(self, call: Call, nodes: tuple[NodeLink, ...]) -> tuple[NodeLink, ...]:
        """Nodes that take a job now, waiting for one if need be.

        Raises `Refusal` (503) when the room is full, the wait is over or no node is left.
        """
        began = call.spans.clock()
        try:
            free = _with_credit(nodes)
            if free and not self._waiters:
                return free
            return await self._wait_for_room(call, nodes)
        finally:
            call.spans.add(SATURATION, began)

    async def _wait_for_room(self, call: Call, nodes: tuple[NodeLink, ...]) -> tuple[NodeLink, ...]:
        if len(self._waiters) >= WAITING_MAX:
            raise overloaded("the queue is full")
        try:
            async with asyncio.timeout(WAIT_S_MAX):
                return await self._queue(call, nodes)
        except TimeoutError as error:
            raise overloaded(f"no node had room within {WAIT_S_MAX:.0f} s") from error

    async def _queue(self, call: Call, nodes: tuple[NodeLink, ...]) -> tuple[NodeLink, ...]:
        while True:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(turn)
            call.on_gone = partial(_wake, turn)
            try:
                await turn
            finally:
                call.on_gone = None
                if turn in self._waiters:
                    self._waiters.remove(turn)
            if call.gone:
                self._wake_one()
                raise ClientGone
            if not any(link.takes_jobs for link in nodes):
                raise overloaded("the last node of this model has left")
            free = _with_credit(nodes)
            if free:
                return free

    def _wake_one(self) -> None:
        while self._waiters:
            turn = self._waiters.popleft()
            if not turn.done():
                turn.set_result(None)
                return

    def _wake_all(self) -> None:
        for turn in self._waiters:
            _wake(turn)


def overloaded(reason: str) -> Refusal:
    """503 with a time to come back."""
    return unavailable(
        "server_is_overloaded",
        f"The service is overloaded: {reason}. Nothing was charged.",
        retry_after_s=SHED_RETRY_S,
    )


def _with_credit(nodes: tuple[NodeLink, ...]) -> tuple[NodeLink, ...]:
    return tuple(link for link in nodes if link.takes_jobs and link.account.credits_left > 0)


def _wake(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)
