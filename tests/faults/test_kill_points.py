"""Gateways killed before, inside and after each of their commits (C4): twenty of the campaign."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING

import pytest

from tests.support.servers import Servers

if TYPE_CHECKING:
    from benchmarks.money.kills import Ground

KILLS = 20
SEED = 9


@pytest.fixture
def ground(servers: Servers) -> Iterator[Ground]:
    """Imported late: it needs models, and pytest reads this file before Django is set up."""
    with import_module("benchmarks.money.kills").running_ground(servers, seed=SEED) as ground:
        yield ground


async def test_c4_twenty_kills_at_named_points_lose_and_double_nothing(ground: Ground) -> None:
    """Every complete answer is on the ledger once, at the price of what its client was told."""
    state = import_module("benchmarks.money.kills").State()
    await ground.round(state, KILLS)
    assert set(state.points) == set(import_module("benchmarks.money.tap").POINTS)
    assert state.tried == KILLS
    assert state.answers > KILLS
    assert (state.missing, state.doubled, state.difference_nano_usd) == (0, 0, 0)
