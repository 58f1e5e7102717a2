"""Nodes within a long step: what it excuses at each gateway, and for how long."""

from __future__ import annotations

import msgspec
import pytest

from controlplane.gateway.nodes.facts import LinkState
from controlplane.gateway.nodes.measured.breaker import FAILURES_IN_A_ROW_MAX, BreakerState
from controlplane.gateway.nodes.measured.times import KNOWN_MIN
from controlplane.gateway.nodes.stream import NodeLost
from inference.contract.frames import Step
from tests.support.clock import clock
from tests.support.fleet import MODEL, make_step
from tests.support.links import (
    GAP_S_MAX,
    LIMITS,
    SILENCE_S,
    Fleet,
    fleet,
    still_processing,
)

__all__ = ["clock", "fleet"]


def still_computing(for_s: float) -> Step:
    """What a node says within a long step of another gateway's jobs."""
    return msgspec.structs.replace(make_step(), step_us=0, computing_ms=round(for_s * 1000))


async def test_a_cancel_waits_for_the_end_of_a_step_that_computes(fleet: Fleet) -> None:
    node, _ = fleet.nodes
    _, stream = node.dispatch()
    stream.cancel()
    for second in range(int(SILENCE_S)):
        node.look(1.0)
        node.pong()
        node.take(still_computing(second))
    assert node.link._strikes == 0 and not stream.ended
    node.look(1.0)
    assert node.link._strikes == 1, "it may last no longer than the node allows"
    await stream.settled()


async def test_a_cancel_is_due_as_ever_once_the_step_has_ended(fleet: Fleet) -> None:
    node, other = fleet.nodes
    other.link.on_close()
    _, stream = node.dispatch()
    stream.cancel()
    for second in range(int(2 * LIMITS.cancel_confirm_s)):
        node.look(1.0)
        node.take(still_computing(second))
        node.pong()
    for _ in range(int(LIMITS.cancel_confirm_s)):
        node.take(make_step())
        node.look(1.0)
        node.pong()
    assert node.link._strikes == 0
    node.look(1.0)
    assert node.link._strikes == 1
    await stream.settled()


async def test_a_server_that_works_on_a_job_excuses_no_late_cancel(fleet: Fleet) -> None:
    node, _ = fleet.nodes
    running, _ = node.dispatch()
    _, stream = node.dispatch()
    stream.cancel()
    for second in range(int(LIMITS.cancel_confirm_s) + 1):
        node.take(still_processing(running, silent_s=second))
        node.look(1.0)
        node.pong()
    assert stream.ended and node.link._strikes == 1


async def test_a_step_of_another_gateways_jobs_keeps_the_link_and_what_waits(fleet: Fleet) -> None:
    node, other = fleet.nodes
    other.link.on_close()
    node.serve(KNOWN_MIN)
    job, stream = node.dispatch()
    for second in range(int(SILENCE_S)):
        node.look(1.0)
        node.pong()
        node.take(still_computing(second))
        assert node.link.state is LinkState.READY and not node.link.suspect
    assert node.link.jobs.holds(job.request) and not stream.ended
    for _ in range(int(LIMITS.progress_timeout_s) + 1):
        node.pong()
        node.take(still_computing(SILENCE_S + 1.0))
        node.look(1.0)
    assert node.link.state is LinkState.CLOSED, "the node does not keep its own bound"


async def test_what_waits_for_a_long_step_goes_elsewhere_and_is_no_failure(fleet: Fleet) -> None:
    node, _ = fleet.nodes
    node.serve(KNOWN_MIN)
    begun, _ = node.dispatch()
    node.answer(begun)
    waiting = [node.dispatch()[1] for _ in range(2 * FAILURES_IN_A_ROW_MAX)]
    firsts = list(node.link.known.times(MODEL).recent)
    for second in range(int(GAP_S_MAX) + 1):
        node.look(1.0)
        node.pong()
        node.take(still_computing(second))
    for stream in waiting:
        with pytest.raises(NodeLost):
            await stream.batch()
    assert node.serves and node.state is BreakerState.CLOSED
    assert list(node.link.known.times(MODEL).recent) == firsts
    assert node.link.jobs.holds(begun.request), "what has its first token goes on"
