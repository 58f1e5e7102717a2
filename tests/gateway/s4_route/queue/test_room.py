"""The waiting room on an event loop: one credit, one request; and no credit lies idle."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.gateway.call import Call, ClientGone
from controlplane.gateway.nodes.link import NodeLink
from controlplane.gateway.nodes.measured.account import JobBooking, NodeAccount
from controlplane.gateway.s4_route import saturation
from controlplane.gateway.s4_route.queue.request import NoRoom, QueueLane
from controlplane.gateway.s4_route.saturation import Nodes, WaitingRoom
from tests.gateway.s4_route.queue.test_turns import LANE, claim

TURNS_MAX = 50


class Node:
    """What the room looks at of a link: its account, and whether it takes jobs."""

    def __init__(self, credits: int) -> None:
        self.account = NodeAccount(credits)
        self.takes_jobs = True


class Last(Random):
    """Takes the last of several."""

    def choice(self, seq: Any) -> Any:
        """No chance at all."""
        return seq[-1]


class Site:
    """Nodes, the room before them, and requests that hold a credit until told to end."""

    def __init__(self, credits: list[int]) -> None:
        self.on_credit: list[Callable[[NodeLink], None]] = []
        self.on_change: list[Callable[[], None]] = []
        self.nodes = [Node(each) for each in credits]
        self.room = WaitingRoom(self)
        self.running: list[tuple[Node, JobBooking]] = []
        self.served: list[str] = []
        self.refused: list[NoRoom] = []

    def reach(self, lane: QueueLane) -> Nodes:
        """The nodes that serve a lane: those whose numbers it needs, or all."""
        wanted = [self.nodes[int(number)] for number in lane.needs] or self.nodes
        return cast(Nodes, tuple(node for node in wanted if node.takes_jobs))

    async def serve(
        self, call: Call, lane: QueueLane, name: str, random: Random | None = None, **changes: Any
    ) -> None:
        """One request: room, then at once a credit, which `NodeAccount` never gives twice."""
        try:
            free = await self.room.roomy(
                call, lane, lambda: self.reach(lane), claim=claim(name, **changes)
            )
        except NoRoom as error:
            self.refused.append(error)
            return
        except ClientGone:
            return
        roomy = [node for node in free if node.account.credits_left > 0]
        node = cast(Node, roomy[0] if random is None else random.choice(roomy))
        self.running.append((node, node.account.book(1)))
        self.served.append(name)

    def end(self, number: int) -> None:
        """A job ends and its credit comes back."""
        node, booking = self.running.pop(number % len(self.running))
        booking.release()
        self.credit(node)

    def credit(self, node: Node) -> None:
        """A credit came back, or the node gave more."""
        for callback in self.on_credit:
            callback(cast(NodeLink, node))

    def change(self) -> None:
        """Nodes came or went."""
        for callback in self.on_change:
            callback()

    def left(self) -> tuple[int, ...]:
        """What the room still holds of anyone."""
        room = self.room
        return (
            len(room), len(room._waiters), len(room._promised), len(room._reach.links()),
        )  # fmt: skip


async def settle() -> None:
    """Let everything that is ready run."""
    for _ in range(TURNS_MAX):
        await asyncio.sleep(0)


@pytest.fixture(autouse=True)
def only_news(monkeypatch: pytest.MonkeyPatch) -> None:
    """No second look by the clock: whatever is missed shows."""
    monkeypatch.setattr(saturation, "LOOK_AGAIN_S", 1e6)


async def test_shed_at_arrival_is_shed_without_waiting() -> None:
    """Not one turn of the event loop lies between asking and the refusal."""
    site = Site([1])
    await site.serve(Call([]), LANE, "a")
    asked = site.room.roomy(Call([]), LANE, lambda: site.reach(LANE), claim=claim(queue_s=0.0))
    with pytest.raises(NoRoom) as caught:
        asked.send(None)
    assert caught.value.reason == "late"
    nowhere = site.room.roomy(Call([]), LANE, lambda: (), claim=claim())
    with pytest.raises(NoRoom) as caught:
        nowhere.send(None)
    assert caught.value.reason == "none"
    assert site.left() == (0, 0, 0, 0)


async def test_a_flood_delays_another_tenant_by_one_job_per_credit() -> None:
    site = Site([2, 1])
    flood = [asyncio.create_task(site.serve(Call([]), LANE, "a")) for _ in range(200)]
    await settle()
    single = asyncio.create_task(site.serve(Call([]), LANE, "b"))
    await settle()
    for _ in range(3):
        site.end(0)
        await settle()
    assert "b" in site.served and len(site.served) == 6
    for task in [*flood, single]:
        task.cancel()
    await settle()
    assert site.left() == (0, 0, 0, 0)


async def test_a_place_is_kept_while_nodes_come_and_go() -> None:
    site = Site([1, 0])
    names = ["a", "b", "c", "d"]
    tasks = [asyncio.create_task(site.serve(Call([]), LANE, "a")) for _ in range(2)]
    await settle()
    tasks += [asyncio.create_task(site.serve(Call([]), LANE, name)) for name in names[1:]]
    await settle()
    site.nodes[0].takes_jobs = False
    site.change()
    await settle()
    assert len(site.room) == 4
    # The other node takes one now, and is gone again before that one has looked.
    site.nodes[1].account.credits = 1
    site.credit(site.nodes[1])
    site.nodes[1].account.credits = 0
    await settle()
    assert site.served == ["a"]
    site.nodes[1].account.credits = 9
    site.credit(site.nodes[1])
    await settle()
    assert site.served == ["a", "b", "c", "d", "a"]
    assert len(tasks) == 5 and site.left() == (0, 0, 0, 0)


async def test_who_takes_another_nodes_credit_leaves_its_own_to_the_next() -> None:
    site = Site([0, 0])
    picky = LANE._replace(needs=("0",))
    first = asyncio.create_task(site.serve(Call([]), LANE, "a", Last()))
    await settle()
    second = asyncio.create_task(site.serve(Call([]), picky, "b"))
    await settle()
    for node in site.nodes:
        node.account.credits = 1
        site.credit(node)
    await asyncio.wait({first, second}, timeout=5)
    assert site.served == ["a", "b"]
    assert [node.account.active for node in site.nodes] == [1, 1]


@pytest.mark.parametrize("cancelled", [False, True])
async def test_who_leaves_with_a_promise_passes_it_on(cancelled: bool) -> None:
    site, call = Site([0]), Call([])
    first = asyncio.create_task(site.serve(call, LANE, "a"))
    await settle()
    second = asyncio.create_task(site.serve(Call([]), LANE, "b"))
    await settle()
    site.nodes[0].account.credits = 1
    site.credit(site.nodes[0])
    if cancelled:
        first.cancel()
    else:
        call.client_left()
    await asyncio.wait({first, second}, timeout=5)
    assert site.served == ["b"]
    assert site.left() == (0, 0, 0, 0)


async def test_a_node_that_one_cannot_use_after_all_does_not_wake_it_again_and_again() -> None:
    site, looked = Site([0, 0]), 0

    def only_second() -> Nodes:
        nonlocal looked
        looked += 1
        return site.reach(LANE)[1:]

    gone = Call([])
    first = asyncio.create_task(site.serve(gone, LANE, "a"))
    await settle()
    room = site.room.roomy(Call([]), LANE, only_second, claim=claim("b"))
    second = asyncio.create_task(room)
    await settle()
    gone.client_left()
    await first
    looked = 0
    site.nodes[0].account.credits = 1
    site.credit(site.nodes[0])
    await settle()
    assert (looked, len(site.room)) == (1, 1)
    site.nodes[1].account.credits = 1
    site.credit(site.nodes[1])
    assert await second == only_second()


async def test_when_no_node_is_left_nobody_waits_on() -> None:
    site = Site([0])
    call = Call([])
    task = asyncio.create_task(site.serve(call, LANE, "a"))
    await settle()
    site.nodes[0].takes_jobs = False
    site.change()
    await task
    assert [error.reason for error in site.refused] == ["none"]
    assert call.queued is not None and call.queued.position == 0
    assert site.left() == (0, 0, 0, 0)


async def test_a_wait_ends_when_it_is_of_no_more_use() -> None:
    site = Site([0])
    await site.serve(Call([]), LANE, "a", queue_s=0.02)
    await site.serve(Call([]), LANE, "a", deadline_s=0.02)
    assert [error.reason for error in site.refused] == ["late", "late"]
    assert site.left() == (0, 0, 0, 0)


async def test_a_wait_that_ends_amid_a_broken_promise_ends_all_the_same() -> None:
    site, loop = Site([1]), asyncio.get_running_loop()
    await site.serve(Call([]), LANE, "x")

    def promise_and_break() -> None:
        site.end(0)
        site.nodes[0].account.credits = 0

    waiting = asyncio.create_task(site.serve(Call([]), LANE, "a", queue_s=1e-9))
    # Two turns of the loop from now: just before the end of the wait is told.
    loop.call_soon(loop.call_soon, promise_and_break)
    await settle()
    assert [error.reason for error in site.refused] == ["late"]
    await waiting
    assert len(site.room) == 0


async def test_who_is_displaced_hears_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controlplane.gateway.s4_route.queue.waiting.WAITING_MAX", 1)
    site = Site([0])
    low = asyncio.create_task(site.serve(Call([]), LANE, "a", priority=0))
    await settle()
    high = asyncio.create_task(site.serve(Call([]), LANE, "b", priority=2))
    await low
    assert [error.reason for error in site.refused] == ["full"]
    site.nodes[0].account.credits = 1
    site.credit(site.nodes[0])
    await high
    assert site.served == ["b"]


async def test_a_node_that_opens_by_the_clock_alone_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(saturation, "LOOK_AGAIN_S", 0.01)
    site = Site([0])
    task = asyncio.create_task(site.serve(Call([]), LANE, "a"))
    await settle()
    site.nodes[0].account.credits = 1
    await asyncio.wait_for(task, 5)
    assert site.served == ["a"]


LANES = [LANE, *(LANE._replace(needs=needs) for needs in (("0",), ("0", "1"), ("2",)))]
EVENTS = st.lists(
    st.tuples(
        st.sampled_from(
            ["ask", "ask", "ask", "end", "end", "leave", "cancel", "credits", "down", "up", "turn"]
        ),
        st.integers(0, 11),
    ),
    max_size=80,
)


@settings(deadline=None)
@given(st.lists(st.integers(0, 2), min_size=3, max_size=3), EVENTS, st.integers(0, 2**16))
def test_whatever_happens_no_credit_goes_twice_and_none_lies_idle(
    credits: list[int], events: list[tuple[str, int]], seed: int
) -> None:
    """`Account.book` fails on a credit that is gone; a free one that somebody waits for fails here.

    A request that finds none after all goes back: so does a promise that nobody redeems.
    """
    asyncio.run(_live(credits, events, Random(seed)))


async def _live(credits: list[int], events: list[tuple[str, int]], random: Random) -> None:
    site = Site(credits)
    tasks: list[tuple[asyncio.Task[None], Call, QueueLane]] = []
    for what, number in events:
        tasks = [each for each in tasks if not each[0].done()]
        node = site.nodes[number % 3]
        if what == "ask":
            call, lane = Call([]), LANES[number % 4]
            serve = site.serve(call, lane, str(number % 5), random, priority=number % 3)
            tasks.append((asyncio.create_task(serve), call, lane))
        elif what == "end" and site.running:
            site.end(number)
        elif what == "leave" and tasks:
            tasks[number % len(tasks)][1].client_left()
        elif what == "cancel" and tasks:
            tasks[number % len(tasks)][0].cancel()
        elif what == "credits":
            node.account.credits = number % 4
            site.credit(node)
        elif what in ("down", "up"):
            node.takes_jobs = what == "up"
            site.change()
        else:
            await settle()
            _no_idle_credit(site, tasks)
    await settle()
    _no_idle_credit(site, tasks)
    assert len(site.room) == sum(not task.done() for task, _, _ in tasks)
    for task, _, _ in tasks:
        task.cancel()
    await settle()
    assert site.left() == (0, 0, 0, 0)
    for task, _, _ in tasks:
        assert task.cancelled() or task.exception() is None


def _no_idle_credit(site: Site, tasks: list[tuple[asyncio.Task[None], Call, QueueLane]]) -> None:
    waiting = [lane for task, _, lane in tasks if not task.done()]
    for lane in waiting:
        assert all(link.account.credits_left <= 0 for link in site.reach(lane))
