"""Leave without dropping anything: nothing new, finish what runs, wait for acknowledgements.

At the deadline a job of which nothing was delivered goes back, so that its gateway gives it to
another node; the others end with what they have, which is charged.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from inference.contract.frames import Draining
from inference.node.options import ACK_WAIT_S, CANCEL_WAIT_S, DRAIN_POLL_S
from inference.node.service import Node

log = logging.getLogger(__name__)


async def drain(node: Node, deadline_s: float) -> None:
    """Finish the node's jobs until the deadline, end the rest, and let reports be settled."""
    node.draining = True
    for link in node.links:
        link.send(Draining(deadline_s=deadline_s))
    log.info("draining jobs=%d deadline_s=%.0f", node.jobs.jobs_count, deadline_s)
    if not await _until(lambda: not node.jobs.jobs_count, deadline_s):
        back = node.hand_back()
        log.warning(
            "drain deadline passed, jobs handed back=%d cancelled=%d", back, node.jobs.jobs_count
        )
        node.cancel_all()
        await _until(lambda: not node.jobs.jobs_count, CANCEL_WAIT_S)
    if not await _until(lambda: not node.jobs.reports_count, ACK_WAIT_S):
        log.warning("left without acknowledgement of reports=%d", node.jobs.reports_count)


async def _until(true: Callable[[], bool], wait_s: float) -> bool:
    """Wait for a condition; False when the time is over first."""
    end_s = time.monotonic() + wait_s
    while not true():
        if time.monotonic() >= end_s:
            return False
        await asyncio.sleep(DRAIN_POLL_S)
    return True
