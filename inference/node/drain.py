"""Leave, or rest on request, without dropping anything: take nothing new, finish what runs.

At the deadline a job of which nothing was delivered goes back, so that its gateway gives it to
another node; the others end with what they have, which is charged.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from typing import Protocol

from inference.contract.drain import Drain, Draining, Undrain
from inference.node.jobs import JobTable
from inference.node.link import GatewayLink
from inference.node.options import ACK_WAIT_S, CANCEL_WAIT_S, DRAIN_POLL_S

log = logging.getLogger(__name__)


class Drainable(Protocol):
    draining: bool
    jobs: JobTable

    @property
    def links(self) -> Iterable[GatewayLink]:
        """One for each gateway."""

    def hand_back(self) -> int:
        """Give jobs of which nothing was delivered back; returns how many."""

    def cancel_all(self) -> None:
        """Cancel every job in the engine."""


class Rest:
    """Whether the node was sent to rest: it takes no jobs and stays connected."""

    def __init__(self, node: Drainable) -> None:
        self._node = node
        self._ending: asyncio.Task[None] | None = None

    def __bool__(self) -> bool:
        return self._ending is not None

    def obey(self, order: Drain | Undrain) -> None:
        """Take no jobs from now on; said again, as by each gateway, the newest deadline counts."""
        if isinstance(order, Undrain):
            self.end()
            return
        deadline_s = order.deadline_s
        if self._ending is not None:
            self._ending.cancel()
        log.info("resting jobs=%d deadline_s=%.0f", self._node.jobs.jobs_count, deadline_s)
        self._ending = asyncio.create_task(finish(self._node, deadline_s), name="rest")

    def end(self) -> None:
        if self._ending is not None:
            self._ending.cancel()
            self._ending = None
            log.info("rest is over")


async def drain(node: Drainable, deadline_s: float) -> None:
    """Finish the node's jobs until the deadline, end the rest, and let reports be settled."""
    node.draining = True
    for link in node.links:
        link.send(Draining(deadline_s=deadline_s))
    log.info("draining jobs=%d deadline_s=%.0f", node.jobs.jobs_count, deadline_s)
    await finish(node, deadline_s)
    if not await _until(lambda: not node.jobs.reports_count, ACK_WAIT_S):
        log.warning("left without acknowledgement of reports=%d", node.jobs.reports_count)


async def finish(node: Drainable, deadline_s: float) -> None:
    """Let the node's jobs run until the deadline, then end those that still do."""
    if not await _until(lambda: not node.jobs.jobs_count, deadline_s):
        back = node.hand_back()
        log.warning(
            "drain deadline passed, jobs handed back=%d cancelled=%d", back, node.jobs.jobs_count
        )
        node.cancel_all()
        await _until(lambda: not node.jobs.jobs_count, CANCEL_WAIT_S)


async def _until(true: Callable[[], bool], wait_s: float) -> bool:
    """Wait for a condition; False when the time is over first."""
    end_s = time.monotonic() + wait_s
    while not true():
        if time.monotonic() >= end_s:
            return False
        await asyncio.sleep(DRAIN_POLL_S)
    return True
