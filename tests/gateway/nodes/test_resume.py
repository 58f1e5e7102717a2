"""A link whose socket breaks goes on over another one: nothing is lost, doubled or given away."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
import pytest

from controlplane.gateway.nodes.checks import hello_problem
from controlplane.gateway.nodes.facts import LinkState
from controlplane.gateway.nodes.limits import CLOSE_FENCED, CLOSE_REPLACED, LinkLimits
from controlplane.gateway.nodes.link import NodeLink
from controlplane.gateway.nodes.measured.breaker import BreakerState
from controlplane.gateway.nodes.stream import JobStream, NodeLost
from controlplane.gateway.ports import Orders
from inference.contract.codec import decode_from_gateway, encode
from inference.contract.frames import (
    Cancel,
    FromGateway,
    FromNode,
    Job,
    ModelOffer,
    Ping,
    Pong,
    Welcome,
)
from inference.contract.replay import REPLAY_BYTES_MAX, Replay, Resume, Resumed
from tests.support.clock import Clock, clock
from tests.support.fleet import (
    MODEL,
    NODE,
    MemoryPort,
    World,
    make_hello,
    make_job,
    make_output,
    make_step,
    make_usage,
    outputs_of,
)

__all__ = ["clock"]

# Long ticks of the loop: these tests look at the clock themselves.
LIMITS = LinkLimits(tick_s=3600.0)
RESUME_S = LIMITS.resume_s
SHORT_S = 1.0
OFFER = ModelOffer(name=MODEL, digest="", context_window=4096, vocab_size=0)
SESSION = "session-1"


class Dialled:
    """One socket of a hand-made node, with what came over it."""

    def __init__(self, world: World, *, node: str = NODE, pool: str | None = None) -> None:
        self.world = world
        self.sent: list[FromGateway] = []
        self.codes: list[int] = []
        identity = MemoryPort().identities["node_sluice_test"]
        identity = msgspec.structs.replace(identity, id=node, name=node, pool=pool)
        self.shell: NodeLink = world.fleet.connect(
            identity,
            send=lambda data: self.sent.append(decode_from_gateway(data)),
            close=lambda code, reason: self.codes.append(code),
        )
        self.socket = self.shell.session.socket

    def greet(self, node: str = NODE, session: str = SESSION, **changes: object) -> NodeLink:
        self.take(make_hello(node=node, models=[OFFER], session=session, **changes))
        return self.shell

    def take(self, *frames: FromNode) -> None:
        for frame in frames:
            self.socket.on_bytes(encode(frame))

    def resume(self, *, received: int, held: int = 0, session: str = SESSION) -> int | None:
        """Ask for the session; returns how many frames the gateway says that it has."""
        self.take(Resume(session=session, received=received, held=held))
        assert isinstance(self.sent[0], Resumed)
        return self.sent[0].received

    @property
    def frames(self) -> list[FromGateway]:
        """Those that both ends count."""
        return [each for each in self.sent if not isinstance(each, Welcome | Resumed)]


@pytest.fixture
async def world(clock: Clock) -> AsyncIterator[World]:
    made = World(LIMITS)
    yield made
    await made.fleet.close()


def dispatch(world: World, link: NodeLink) -> tuple[Job, JobStream]:
    made = make_job(request_json=b"{}")
    return made, world.fleet.dispatch(link, made)


def word(job: Job, number: int, *, finish: str | None = None) -> FromNode:
    """One step of one job."""
    usage = make_usage(completion=number)
    output = make_output(job.request, tokens=[], text=f"{number} ", usage=usage, finish=finish)
    return make_step(output)


async def text_of(stream: JobStream) -> str:
    return "".join(output.text or "" for output in await outputs_of(stream))


def serves(world: World, link: NodeLink) -> bool:
    return link in world.fleet.candidates(MODEL)


async def test_a_stream_goes_on_after_a_break_with_every_output_once(
    world: World, clock: Clock
) -> None:
    first = Dialled(world)
    link = first.greet()
    job, stream = dispatch(world, link)
    words = [word(job, 1), word(job, 2), word(job, 3, finish="stop")]
    first.take(words[0])
    first.socket.on_break("gone")
    assert not serves(world, link) and link.account.active == 1
    clock.pass_s(SHORT_S)
    link.tick()
    second = Dialled(world)
    # The job had arrived; the node's first word, too, as the answer tells it.
    assert second.resume(received=len(first.frames)) == 1
    assert second.frames == []
    assert serves(world, link)
    second.take(*words[1:])
    assert await text_of(stream) == "1 2 3 "
    assert (link.account.active, link._strikes) == (0, 0)
    assert link.breaker.state is BreakerState.CLOSED
    assert link.breaker._outcomes.count(False) == 0


async def test_what_the_node_did_not_get_is_sent_again_and_cancels_wait_for_it(
    world: World,
) -> None:
    first = Dialled(world)
    link = first.greet()
    jobs = [dispatch(world, link) for _ in range(3)]
    first.socket.on_break("gone")
    jobs[0][1].cancel()
    arrived = len(first.frames) - 2
    second = Dialled(world)
    second.resume(received=arrived)
    assert second.frames == [*first.frames[arrived:], Cancel(request=jobs[0][0].request)]


async def test_frames_that_arrived_are_not_kept(world: World) -> None:
    first = Dialled(world)
    link = first.greet()
    dispatch(world, link)
    link.ping()
    ping = first.frames[-1]
    assert isinstance(ping, Ping)
    first.take(Pong(number=ping.number, received=len(first.frames)))
    first.socket.on_break("gone")
    second = Dialled(world)
    # It says that it lacks what it has confirmed.
    assert second.resume(received=0) is None
    third = Dialled(world)
    assert third.resume(received=len(first.frames)) == 1
    link.ping()
    assert third.frames == [Ping(number=ping.number + 1, received=1)]


async def test_when_the_time_is_over_jobs_fail_as_they_do_without_resuming(
    world: World, clock: Clock
) -> None:
    first = Dialled(world)
    link = first.greet()
    job, stream = dispatch(world, link)
    first.take(word(job, 1))
    first.socket.on_break("gone")
    clock.pass_s(RESUME_S)
    link.tick()
    assert not stream.ended
    clock.pass_s(0.1)
    link.tick()
    assert link.state is LinkState.CLOSED and NODE not in world.fleet.nodes()
    assert await stream.batch()
    with pytest.raises(NodeLost):
        await stream.batch()
    assert link.breaker._outcomes.count(False) == 1
    assert Dialled(world).resume(received=len(first.frames)) is None


async def test_a_node_that_was_started_anew_resumes_nothing(world: World) -> None:
    first = Dialled(world)
    link = first.greet()
    job, stream = dispatch(world, link)
    first.take(word(job, 1))
    first.socket.on_break("gone")
    second = Dialled(world)
    fresh = second.greet(epoch="epoch-2", session="session-2")
    assert (link.state, first.codes) == (LinkState.CLOSED, [CLOSE_FENCED])
    assert stream.ended and serves(world, fresh) and not fresh.jobs
    third = Dialled(world)
    assert third.resume(received=len(first.frames)) is None
    third.greet()
    assert third.codes == [CLOSE_FENCED], "the epoch that was replaced never comes back"


async def test_what_waits_for_a_first_token_goes_where_there_is_room(world: World) -> None:
    first, other = Dialled(world), Dialled(world, node="node-2")
    link = first.greet()
    other.greet(node="node-2")
    waiting, begun = dispatch(world, link), dispatch(world, link)
    first.take(word(begun[0], 1))
    first.socket.on_break("gone")
    with pytest.raises(NodeLost):
        await waiting[1].batch()
    assert not begun[1].ended
    second = Dialled(world)
    assert second.resume(received=len(first.frames)) == 1
    assert second.frames == [Cancel(request=waiting[0].request)]
    second.take(word(waiting[0], 1), word(begun[0], 2, finish="stop"))
    assert await text_of(begun[1]) == "1 2 "
    assert (link._strikes, link.account.active) == (0, 0)


async def test_the_time_of_a_break_counts_for_no_job_and_no_silence(
    world: World, clock: Clock
) -> None:
    first, other = Dialled(world), Dialled(world, node="node-2")
    link = first.greet()
    jobs = [dispatch(world, link) for _ in range(2)]
    first.take(*(word(job, 1) for job, _ in jobs))
    jobs[1][1].cancel()
    other.greet(node="node-2")
    link.limits = msgspec.structs.replace(
        LIMITS, cancel_confirm_s=SHORT_S, pong_timeout_s=SHORT_S, progress_timeout_s=SHORT_S
    )
    first.socket.on_break("gone")
    clock.pass_s(RESUME_S - 0.1)
    second = Dialled(world)
    second.resume(received=len(first.frames))
    link.tick()
    assert link.state is LinkState.READY and not link.suspect
    assert not any(stream.ended for _, stream in jobs)


async def test_a_break_that_only_the_node_has_noticed(world: World) -> None:
    first = Dialled(world)
    link = first.greet()
    job, stream = dispatch(world, link)
    first.take(word(job, 1))
    second = Dialled(world)
    assert second.resume(received=len(first.frames)) == 1
    assert first.codes == [CLOSE_REPLACED]
    # What the old socket still holds is sent again over the new one.
    first.take(word(job, 2))
    first.socket.on_break("gone")
    first.socket.on_close("gone")
    assert link.state is LinkState.READY and serves(world, link)
    second.take(word(job, 2), word(job, 3, finish="stop"))
    assert await text_of(stream) == "1 2 3 "


async def test_a_second_break_is_resumed_like_the_first(world: World) -> None:
    sockets = [Dialled(world)]
    link = sockets[0].greet()
    job, stream = dispatch(world, link)
    received = len(sockets[0].frames)
    for number in range(1, 4):
        sockets[-1].take(word(job, number))
        sockets[-1].socket.on_break("gone")
        sockets.append(Dialled(world))
        assert sockets[-1].resume(received=received) == number
    sockets[-1].take(word(job, 4, finish="stop"))
    assert await text_of(stream) == "1 2 3 4 "


@pytest.mark.parametrize("how", ["closed", "idle", "no session"])
async def test_a_link_that_cannot_be_resumed_ends_at_once(world: World, how: str) -> None:
    first = Dialled(world)
    link = first.greet(session="" if how == "no session" else SESSION)
    if how != "idle":
        dispatch(world, link)
    end = first.socket.on_close if how == "closed" else first.socket.on_break
    end("gone")
    assert link.state is LinkState.CLOSED and not link.jobs
    assert Dialled(world).resume(received=len(first.frames)) is None


async def test_what_the_gateway_has_closed_is_not_resumed(world: World) -> None:
    first = Dialled(world)
    link = first.greet()
    dispatch(world, link)
    first.socket.on_break("gone")
    world.fleet_port.said[NODE] = Orders(lapsed="revoked")
    await world.fleet._follow_orders(world.fleet_port)
    assert link.state is LinkState.CLOSED and not link.jobs
    assert Dialled(world).resume(received=len(first.frames)) is None


@pytest.mark.parametrize("session", ["", "session-2"])
async def test_a_session_that_is_not_here_is_refused_and_a_hello_still_taken(
    world: World, session: str
) -> None:
    first = Dialled(world)
    link = first.greet()
    _, stream = dispatch(world, link)
    first.socket.on_break("gone")
    second = Dialled(world)
    assert second.resume(received=0, session=session) is None
    assert not stream.ended
    assert serves(world, second.greet(session="session-3"))
    with pytest.raises(NodeLost):
        await stream.batch()


async def test_another_node_cannot_take_a_session_over(world: World) -> None:
    first, rogue = Dialled(world), Dialled(world, node="node-2")
    link = first.greet()
    dispatch(world, link)
    first.socket.on_break("gone")
    assert rogue.resume(received=0) is None
    moved = Dialled(world, pool="another")
    assert moved.resume(received=0) is None, "its registration has changed"
    assert link.jobs


async def test_frames_that_were_never_sent_cannot_have_been_received(world: World) -> None:
    first = Dialled(world)
    link = first.greet()
    _, stream = dispatch(world, link)
    first.socket.on_break("gone")
    rogue = Dialled(world)
    rogue.take(Resume(session=SESSION, received=len(first.frames) + 1, held=0))
    assert (rogue.shell._strikes, rogue.sent) == (1, [])
    assert not stream.ended and link.session.socket is first.socket
    link = Dialled(world).greet(session="session-2")
    link.ping()
    link.on_bytes(encode(Pong(number=1, received=99)))
    assert link._strikes == 1


async def test_outputs_that_the_node_has_forgotten_end_the_session(world: World) -> None:
    first = Dialled(world)
    link = first.greet()
    job, _ = dispatch(world, link)
    first.take(word(job, 1))
    first.socket.on_break("gone")
    assert Dialled(world).resume(received=len(first.frames), held=2) is None


async def test_a_resume_after_a_hello_is_a_strike(world: World) -> None:
    first = Dialled(world)
    link = first.greet()
    first.take(Resume(session=SESSION, received=0, held=0))
    assert link._strikes == 1


@pytest.mark.parametrize("field", ["session", "release"])
def test_what_a_hello_may_leave_empty_is_else_printable(field: str) -> None:
    for name in ("a\0", "a" * 1000):
        problem = hello_problem(make_hello(**{field: name}))
        assert problem is not None and problem.startswith(f"hello.{field}:")


def test_kept_frames_are_bounded_in_bytes() -> None:
    replay = Replay()
    frame = bytes(REPLAY_BYTES_MAX // 4)
    for _ in range(6):
        replay.add(frame)
    assert (replay.sent, replay.held) == (6, 2)
    assert not replay.reaches(1) and replay.reaches(2) and not replay.reaches(7)
    assert replay.since(5) == [frame]
    replay.forget(4)
    replay.forget(3)
    assert replay.held == 4
    replay.forget(99)
    assert (replay.held, replay.since(6)) == (6, [])
