"""Gateways killed before, inside and after each of their commits (C4): each point once."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING

import pytest

from tests.support.servers import Servers

if TYPE_CHECKING:
    from benchmarks.money.kills import Ground

# Some minutes where other work is done beside it.
pytestmark = pytest.mark.timeout(600)

SEED = 9


@pytest.fixture
def ground(servers: Servers) -> Iterator[Ground]:
    """Imported late: it needs models, and pytest reads this file before Django is set up."""
    with import_module("benchmarks.money.kills").running_ground(servers, seed=SEED) as ground:
        yield ground


async def test_c4_a_kill_at_each_named_point_loses_and_doubles_nothing(ground: Ground) -> None:
    """Every complete answer is on the ledger once, at the price of what its client was told."""
    state = import_module("benchmarks.money.kills").State()
    points = import_module("benchmarks.money.tap").POINTS
    await ground.round(state, len(points))
    assert set(state.points) == set(points)
    assert state.tried == len(points)
    assert state.answers > len(points)
    assert (state.missing, state.doubled, state.difference_nano_usd) == (0, 0, 0)
