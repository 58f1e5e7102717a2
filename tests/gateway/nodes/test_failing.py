"""Nodes that stand still, are late, slow or gone: what happens to their jobs and to new ones."""

from __future__ import annotations

import msgspec
import pytest

from controlplane.gateway.nodes.facts import LinkState
from controlplane.gateway.nodes.measured.breaker import (
    FAILURES_IN_A_ROW_MAX,
    PROBES_MAX,
    BreakerState,
)
from controlplane.gateway.nodes.measured.times import KNOWN_MIN, RECENT_MAX
from controlplane.gateway.nodes.peers import eject_slow
from controlplane.gateway.nodes.stream import NodeLost
from inference.contract.codec import encode
from inference.contract.frames import Cancel, Ping, Pong, Sampling
from inference.contract.grammar import Grammar
from tests.support.clock import clock
from tests.support.fleet import (
    MODEL,
    make_hello,
    make_job,
    make_output,
    make_step,
)
from tests.support.links import (
    FIRST_S,
    GAP_S_MAX,
    LIMITS,
    OFFER,
    QUIET_S,
    SILENCE_S,
    STEP_S,
    Fleet,
    Node,
    fleet,
    still_processing,
)

__all__ = ["clock", "fleet"]

GRAMMAR = Grammar(kind="json_object")


async def test_what_waits_on_a_node_that_stands_still_goes_elsewhere(fleet: Fleet) -> None:
    still, other = fleet.nodes
    still.serve(KNOWN_MIN)
    job, stream = still.dispatch()
    still.look(QUIET_S - 0.1)
    assert still.serves and still.link.jobs.holds(job.request)
    still.look(0.2)
    assert (still.state, still.serves) == (BreakerState.OPEN, False)
    assert other.serves
    with pytest.raises(NodeLost):
        await stream.batch()
    assert Cancel(request=job.request) in still.sent
    assert still.link.account.active == 0
    assert isinstance(still.sent[-1], Ping), "it is asked at once whether it still hears us"


async def test_when_one_stands_still_the_others_are_asked_for_a_sign_of_life(fleet: Fleet) -> None:
    still, other = fleet.nodes
    still.serve(KNOWN_MIN)
    fleet.world.fleet.look()
    asked = sum(isinstance(frame, Ping) for frame in other.sent)
    still.dispatch()
    fleet.clock.pass_s(QUIET_S + 0.1)
    seen_s = other.link.seen_s
    fleet.world.fleet.look()
    assert still.link.suspect and not other.link.suspect
    assert sum(isinstance(frame, Ping) for frame in other.sent) == asked + 1
    other.pong()
    assert other.link.seen_s > seen_s and other.link.seen_s > still.link.seen_s


async def test_a_node_that_moves_again_proves_itself(fleet: Fleet) -> None:
    still, _ = fleet.nodes
    still.serve(KNOWN_MIN)
    job, _ = still.dispatch()
    still.answer(job)
    still.look(QUIET_S + 0.1)
    assert not still.serves
    still.answer(job, finish="stop")
    assert (still.state, still.serves) == (BreakerState.HALF_OPEN, True)
    assert still.link.account.credits_left == PROBES_MAX
    still.serve(PROBES_MAX)
    assert still.state is BreakerState.CLOSED
    assert still.link.account.credits_left == still.link.hello.credits


async def test_one_whose_work_went_elsewhere_proves_itself_when_it_is_heard_again(
    fleet: Fleet,
) -> None:
    still, _ = fleet.nodes
    still.serve(KNOWN_MIN)
    still.dispatch()
    still.look(QUIET_S + 0.1)
    assert not still.link.jobs and still.state is BreakerState.OPEN
    still.look(1.0)
    assert still.state is BreakerState.OPEN
    still.pong()
    assert (still.state, still.serves) == (BreakerState.HALF_OPEN, True)


async def test_a_frozen_node_is_lost_and_one_whose_engine_pauses_is_not(fleet: Fleet) -> None:
    frozen, pausing = fleet.nodes
    streams = []
    for node in fleet.nodes:
        node.serve(KNOWN_MIN)
        job, stream = node.dispatch()
        node.answer(job)
        streams.append(stream)
    for _ in range(int(QUIET_S + LIMITS.frozen_s) + 2):
        for node in fleet.nodes:
            node.link.tick()
        pausing.pong()
        fleet.clock.pass_s(1.0)
    assert frozen.link.state is LinkState.CLOSED
    assert pausing.link.state is LinkState.READY
    assert await streams[0].batch()
    with pytest.raises(NodeLost):
        await streams[0].batch()
    assert not streams[1].ended


async def test_without_another_node_a_wait_goes_on(fleet: Fleet) -> None:
    only, other = fleet.nodes
    only.serve(KNOWN_MIN)
    other.link.on_close()
    job, _ = only.dispatch()
    only.look(QUIET_S + 0.1)
    only.look(FIRST_S)
    assert only.serves, "the last node of a model gets work whatever its breaker says"
    assert only.link.jobs.holds(job.request)


async def test_a_job_that_waits_longer_than_others_ever_did_goes_elsewhere(fleet: Fleet) -> None:
    late, _ = fleet.nodes
    late.serve(KNOWN_MIN)
    job, stream = late.dispatch()
    for _ in range(int(FIRST_S) + 1):
        busy, _ = late.dispatch()
        fleet.clock.pass_s(1.0)
        late.answer(busy, finish="stop")
        late.link.tick()
    with pytest.raises(NodeLost):
        await stream.batch()
    assert late.state is BreakerState.CLOSED, "one failure opens nothing"
    late.answer(job)
    assert late.link._strikes == 0, "what it says of that job later is no offence"


async def test_a_stream_that_stops_while_its_node_goes_on_is_ended(fleet: Fleet) -> None:
    node, _ = fleet.nodes
    job, stream = node.dispatch()
    node.answer(job)
    for _ in range(int(GAP_S_MAX) + 1):
        busy, _ = node.dispatch()
        fleet.clock.pass_s(1.0)
        node.answer(busy, finish="stop")
        node.pong()
        node.link.tick()
    assert await stream.batch()
    with pytest.raises(NodeLost):
        await stream.batch()


@pytest.mark.parametrize("answered", [False, True])
async def test_a_job_lives_while_its_node_speaks_for_the_server(
    fleet: Fleet, answered: bool
) -> None:
    node, _ = fleet.nodes
    node.serve(KNOWN_MIN)
    job, stream = node.dispatch()
    if answered:
        node.answer(job)
    for second in range(int(SILENCE_S)):
        node.look(1.0)
        node.pong()
        node.take(still_processing(job, make_job(), silent_s=second))
        assert node.serves and node.link.jobs.holds(job.request)
    assert node.link._strikes == 0, "a job that was given up may still be named"
    node.take(still_processing(job, silent_s=SILENCE_S + 1.0))
    for _ in range(int(LIMITS.kept_s) + 1):
        node.look(1.0)
        node.answer(node.dispatch()[0], finish="stop")
    assert not node.link.jobs.holds(job.request), "the node does not keep its own bound"
    await stream.settled()


async def test_a_slow_node_among_quick_ones_is_ejected_and_probed_later(fleet: Fleet) -> None:
    slow, quick = fleet.nodes
    quick.serve(RECENT_MAX, after_s=STEP_S)
    slow.serve(RECENT_MAX - 1, after_s=1.0)
    eject_slow(MODEL, fleet.world.fleet.candidates(MODEL))
    assert slow.serves, "too little is known"
    slow.serve(1, after_s=1.0)
    eject_slow(MODEL, fleet.world.fleet.candidates(MODEL))
    assert (slow.state, slow.serves, quick.serves) == (BreakerState.OPEN, False, True)
    fleet.clock.pass_s(LIMITS.eject_s * 2)
    slow.link.breaker.tick()
    assert (slow.state, slow.serves) == (BreakerState.HALF_OPEN, True)


async def test_errors_eject_a_node_and_a_grammar_that_fails_does_not(fleet: Fleet) -> None:
    bad, good = fleet.nodes
    bad.serve(FAILURES_IN_A_ROW_MAX, finish="error")
    assert not bad.serves
    for _ in range(FAILURES_IN_A_ROW_MAX):
        made = make_job(request_json=b"{}")
        made = msgspec.structs.replace(
            made, sampling=msgspec.structs.replace(Sampling(max_tokens=4), grammar=GRAMMAR)
        )
        fleet.world.fleet.dispatch(good.link, made)
        good.answer(made, finish="error")
    assert good.state is BreakerState.CLOSED


async def test_a_breaker_outlives_its_link_and_a_new_link_is_a_new_chance(fleet: Fleet) -> None:
    bad, _ = fleet.nodes
    bad.serve(FAILURES_IN_A_ROW_MAX, finish="error")
    bad.link.on_close()
    again = Node(fleet, "node-1")
    fleet.nodes[0] = again
    assert (again.state, again.link.breaker.ejections) == (BreakerState.HALF_OPEN, 1)
    again.dispatch()
    again.link.on_close()
    assert again.link.breaker.ejections == 2


async def test_late_frames_of_a_link_that_was_replaced_do_nothing(fleet: Fleet) -> None:
    old, _ = fleet.nodes
    job, stream = old.dispatch()
    new = Node(fleet, "node-1")
    assert old.codes and old.link.state is LinkState.CLOSED
    with pytest.raises(NodeLost):
        await stream.batch()
    jobs, breaker = new.dispatch(), new.link.breaker.facts
    for frame in (
        make_step(make_output(job.request, tokens=[], text="late")),
        make_step(make_output(jobs[0].request, tokens=[], text="foreign")),
        make_hello(node="node-1", models=[OFFER]),
        Pong(number=1),
    ):
        old.take(frame)
    assert old.link.state is LinkState.CLOSED
    assert fleet.world.fleet.nodes()["node-1"] is new.link
    assert not jobs[1].completion_tokens and not stream.completion_tokens
    assert new.link.breaker.facts == breaker


async def test_a_fenced_epoch_cannot_come_back(fleet: Fleet) -> None:
    new = msgspec.structs.replace(make_hello(), node="node-1", models=[OFFER], epoch="epoch-2")
    later = Node(fleet, "node-3")
    identity = fleet.nodes[0].link.identity
    codes: list[int] = []
    link = fleet.world.fleet.connect(
        identity, send=lambda data: None, close=lambda code, reason: codes.append(code)
    )
    link.on_bytes(encode(new))
    assert fleet.nodes[0].codes == [4409]
    back = fleet.world.fleet.connect(
        identity, send=lambda data: None, close=lambda code, reason: codes.append(code)
    )
    back.on_bytes(encode(msgspec.structs.replace(new, epoch="epoch-1")))
    assert codes == [4409]
    assert fleet.world.fleet.nodes()["node-1"] is link
    assert later.serves
