"""Twenty faults of each kind between gateways and nodes, under load, on one stack (P7, P9).

The same rounds as `make bench-faults` runs, with its counts: nothing lost, doubled, hung or leaked.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING

import pytest

from tests.support.servers import Servers

if TYPE_CHECKING:
    from benchmarks.faults.ground import Ground

FAULTS = 20
SEED = 4
KINDS = (
    "node killed before first token",
    "node killed after first token",
    "node frozen",
    "network cut",
    "node slow",
    "gateway killed",
)


@pytest.fixture(scope="module")
def ground(servers: Servers) -> Iterator[Ground]:
    """One stack for all of them; each round begins when it is whole again."""
    # Imported late: it needs models, and pytest reads this file before Django is set up.
    with import_module("benchmarks.faults.ground").running_ground(servers, seed=SEED) as ground:
        yield ground


def test_every_kind_is_here() -> None:
    assert set(KINDS) == set(import_module("benchmarks.faults.kinds").KINDS)


@pytest.mark.parametrize("kind", KINDS)
async def test_p7_twenty_faults_lose_double_hang_and_leak_nothing(
    ground: Ground, kind: str
) -> None:
    """P7: breakers, adaptive timeouts and retries before the first token."""
    campaign = import_module("benchmarks.faults.campaign")
    total = import_module("benchmarks.faults.ground").Count()
    while total.tried < FAULTS:
        total.add(await campaign.one_round(ground, kind))
        print(kind, total, *ground.notes, sep="\n  ")
        assert total.clean
