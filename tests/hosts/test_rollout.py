"""Which replica comes and goes: upgrades never serve with fewer than are wanted."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from controlplane.hosts.rollout import Moves, Stand, next_moves

OLD = [Stand("a", False, True), Stand("b", False, True)]


def test_all_missing_are_added_at_once() -> None:
    assert next_moves([], 3) == Moves(add=3)


def test_a_new_one_must_serve_before_an_old_one_goes() -> None:
    assert next_moves(OLD, 2) == Moves(add=1)
    assert next_moves([*OLD, Stand("c", True, False)], 2) == Moves()
    assert next_moves([*OLD, Stand("c", True, True)], 2) == Moves(add=1, drain=("a",))


def test_those_that_serve_nobody_go_first_and_then_the_newest() -> None:
    three = [Stand("a", True, False), Stand("b", True, True), Stand("c", True, True)]
    assert next_moves(three, 2) == Moves(drain=("a",))
    assert next_moves(three[1:], 1) == Moves(drain=("c",))
    assert next_moves(three, 0) == Moves(drain=("a", "b", "c"))


@given(st.integers(1, 5), st.integers(1, 5))
def test_an_upgrade_ends_and_never_serves_with_fewer(before: int, wanted: int) -> None:
    here = [Stand(f"o{n}", False, True) for n in range(before)]
    for step in range(4 * (before + wanted)):
        moves = next_moves(here, wanted)
        here = [each for each in here if each.id not in moves.drain]
        assert sum(each.ready for each in here) >= min(before, wanted)
        here = [Stand(each.id, each.current, True) for each in here]
        here += [Stand(f"n{step}.{n}", True, False) for n in range(moves.add)]
    assert len(here) == wanted and all(each.current for each in here)
