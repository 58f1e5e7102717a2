"""The ring: loads are bounded, siblings meet, and few keys move when nodes come and go."""

from __future__ import annotations

from collections import Counter
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.gateway.s4_route.choice.ring import LOAD_FACTOR, Ring

NAMES = [f"node-{number}" for number in range(10)]
KEYS = [f"prompt {number}".encode() for number in range(2000)]
IDLE = dict.fromkeys(NAMES, 0)


@given(st.lists(st.integers(0, 30), min_size=1, max_size=10), st.binary(max_size=20))
def test_nobody_gets_more_than_a_share(loads: list[int], key: bytes) -> None:
    by_name = dict(zip(NAMES, loads, strict=False))
    chosen = Ring(NAMES).pick(key, by_name)
    assert by_name[chosen] + 1 <= ceil(LOAD_FACTOR * (sum(loads) + 1) / len(loads))


def test_one_hot_beginning_spreads_in_its_order() -> None:
    ring, loads = Ring(NAMES), dict.fromkeys(NAMES, 0)
    for _ in range(1000):
        loads[ring.pick(b"hot", loads)] += 1
    assert max(loads.values()) <= ceil(LOAD_FACTOR * 1000 / len(NAMES))


def test_siblings_meet() -> None:
    ring = Ring(NAMES)
    assert len({ring.pick(b"same", IDLE) for _ in range(5)}) == 1
    assert ring.pick(b"same", IDLE) == Ring(list(reversed(NAMES))).pick(b"same", IDLE)


def test_keys_are_spread() -> None:
    counts = Counter(Ring(NAMES).pick(key, IDLE) for key in KEYS)
    assert min(counts.values()) > 0.5 * len(KEYS) / len(NAMES)


def test_only_the_keys_of_a_lost_node_move() -> None:
    before, after = Ring(NAMES), Ring(NAMES[1:])
    left = dict.fromkeys(NAMES[1:], 0)
    for key in KEYS:
        old = before.pick(key, IDLE)
        if old != NAMES[0]:
            # Also where the node is on the ring still, but full.
            assert after.pick(key, left) == before.pick(key, left) == old


def test_nodes_that_are_not_on_it_are_no_choice() -> None:
    with pytest.raises(ValueError, match="loads"):
        Ring(NAMES).pick(b"key", {"stranger": 0})
