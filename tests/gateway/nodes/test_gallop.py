"""The last n for which something still holds, against knowing it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from controlplane.gateway.nodes.measured.gallop import last_true


@given(st.integers(0, 200), st.integers(0, 200))
def test_last_true(truth: int, most: int) -> None:
    assert last_true(most, lambda _, high: high <= truth) == min(truth, most)
