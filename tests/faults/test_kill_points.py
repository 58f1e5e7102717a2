"""Gateways killed before, inside and after each of their commits (C4): each point once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.money.kills import Ground, State, running_ground
from benchmarks.money.tap import POINTS
from tests.support.servers import Servers

# Some minutes where other work is done beside it.
pytestmark = pytest.mark.timeout(600)

SEED = 9
MORE_ROUNDS_MAX = 3


@pytest.fixture
def ground(servers: Servers) -> Iterator[Ground]:
    with running_ground(servers, seed=SEED, sweeps=False) as ground:
        yield ground


async def test_c4_a_kill_at_each_named_point_loses_and_doubles_nothing(ground: Ground) -> None:
    """Every complete answer is on the ledger once, at the price of what its client was told."""
    state = State()
    await ground.round(state, len(POINTS))
    assert state.points == dict.fromkeys(POINTS, 1)
    assert state.tried == len(POINTS)
    for _ in range(MORE_ROUNDS_MAX):
        # How many come through between the kills is up to the machine.
        if state.answers <= len(POINTS):
            await ground.round(state, len(POINTS))
    assert state.answers > len(POINTS)
    assert (state.missing, state.doubled, state.difference_nano_usd) == (0, 0, 0)
