"""Far from its limits a request's hold is asked for while the limits are; none may stay behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from controlplane.gateway.ask import Ask
from controlplane.gateway.call import Call
from controlplane.gateway.plan import make_plan
from controlplane.gateway.ports import Allowance, Hold, Ledger, Limiter, Room, Standings
from controlplane.gateway.results import Asked
from controlplane.gateway.s1_admission.admit import admit
from controlplane.gateway.snapshot import KeyRecord, ModelRecord
from inference.contract.frames import Sampling
from tests.support.fleet import MODEL, echo_node, make_model
from tests.support.gateway import GatewayUnderTest, running_gateway
from tests.support.memory_ledger import MemoryLedger
from tests.support.ports import MemoryLimiter, MemoryStandings, make_key, make_snapshot
from tests.support.serving import Serving

NO_ROOM = Room("requests", "key", 1, 0, 1.0)
REFUSED = Allowance(allowed=False, rooms=(NO_ROOM,), refused_by=NO_ROOM, retry_after_s=1.0)


class SlowLimiter(MemoryLimiter):
    """Answers once it is told to, so that a hold can come first."""

    def __init__(self) -> None:
        super().__init__(far=True)
        self.asked = asyncio.Event()
        self.told = asyncio.Event()

    async def take(self, key: KeyRecord, tokens: int) -> Allowance:
        """Note, wait and answer."""
        self.asked.set()
        await self.told.wait()
        return await super().take(key, tokens)


class SlowLedger(MemoryLedger):
    """Takes a hold and keeps its caller waiting; one that leaves gets its hold released."""

    def __init__(self) -> None:
        super().__init__()
        self.taken = asyncio.Event()
        self.told = asyncio.Event()

    async def reserve(self, hold: Hold) -> None:
        """Reserve, then wait."""
        await super().reserve(hold)
        self.taken.set()
        try:
            await self.told.wait()
        except asyncio.CancelledError:
            self.release(hold)
            raise


@pytest.fixture
async def slow(tmp_path: Path) -> AsyncIterator[tuple[Serving, SlowLimiter, SlowLedger]]:
    """A gateway with a node, whose limits and holds are answered when the test says so."""
    limiter, ledger = SlowLimiter(), SlowLedger()
    under_test = GatewayUnderTest(limiter=limiter, ledger=ledger)
    model = make_model(tmp_path)
    async with (
        running_gateway(under_test) as client,
        echo_node(under_test.fleet_url, model, tokens_per_s=500.0),
    ):
        await under_test.served()
        yield Serving(under_test, client, model), limiter, ledger
        await under_test.at_rest()


Slow = tuple[Serving, SlowLimiter, SlowLedger]


async def test_hold_and_limits_are_asked_for_together(slow: Slow) -> None:
    serving, limiter, ledger = slow
    asking = asyncio.ensure_future(serving.chat())
    await limiter.asked.wait()
    await ledger.taken.wait()
    limiter.told.set()
    ledger.told.set()
    assert (await asking).status_code == 200
    assert len(ledger.settled) == 1


async def test_near_a_limit_nothing_is_held_before_it_is_asked(slow: Slow) -> None:
    serving, limiter, ledger = slow
    limiter.far = False
    limiter.answer = REFUSED
    limiter.told.set()
    assert (await serving.chat()).status_code == 429
    assert not ledger.held


async def test_a_hold_that_came_before_the_refusal_is_given_back(slow: Slow) -> None:
    serving, limiter, ledger = slow
    limiter.answer = REFUSED
    ledger.told.set()
    asking = asyncio.ensure_future(serving.chat())
    await ledger.taken.wait()
    limiter.told.set()
    assert (await asking).status_code == 429
    assert len(ledger.held) == 1
    assert not ledger.open


async def test_a_hold_on_its_way_when_the_refusal_comes_is_given_back(slow: Slow) -> None:
    serving, limiter, ledger = slow
    limiter.answer = REFUSED
    asking = asyncio.ensure_future(serving.chat())
    await ledger.taken.wait()
    limiter.told.set()
    assert (await asking).status_code == 429
    await serving.under_test.at_rest()
    assert not ledger.open


async def test_tokens_are_given_back_when_the_budget_refuses(slow: Slow) -> None:
    serving, limiter, ledger = slow
    ledger.room_nano = 0
    limiter.told.set()
    answer = await serving.chat()
    assert answer.json()["error"]["code"] == "insufficient_quota"
    assert limiter.corrections == [-tokens for tokens in limiter.taken]


def make_asked() -> Asked:
    """A request of Alice's, as stage 1 has read it."""
    ask = Ask(
        operation="chat",
        model=MODEL,
        stream=False,
        include_usage=False,
        sampling=Sampling(max_tokens=0),
        output_tokens=6,
        stop=(),
        bytes=100,
        text="a",
    )
    snapshot = make_snapshot(MODEL)
    key = make_key()
    return Asked(key, snapshot, ask, make_plan(bytes(16), ask, key, snapshot))


@dataclass
class Doors:
    """What admission needs of the world."""

    limiter: Limiter
    ledger: Ledger
    standings: Standings = field(default_factory=MemoryStandings)
    hold_grace_s: int = 1


async def uncounted(_: ModelRecord) -> int:
    raise AssertionError("the hold fits as it is")


async def test_a_hold_that_comes_as_its_request_is_cancelled_is_given_back() -> None:
    limiter, ledger = MemoryLimiter(far=True), SlowLedger()
    admitting = asyncio.ensure_future(
        admit(Call([]), make_asked(), Doors(limiter, ledger), count_prompt=uncounted)
    )
    await ledger.taken.wait()
    ledger.told.set()
    # One turn of the loop: the hold is there, and whoever waits for it has not heard of it.
    await asyncio.sleep(0)
    admitting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await admitting
    assert len(ledger.held) == 1
    assert not ledger.open
