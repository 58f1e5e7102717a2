"""The grid of step sizes: never too small, little waste, few shapes."""

from __future__ import annotations

from inference.compact.batch.tensors import round_up, round_up_rows


def test_round_up() -> None:
    assert [round_up(count, 32) for count in (0, 1, 32, 33)] == [0, 32, 32, 64]


def test_rows() -> None:
    sizes = [round_up_rows(count) for count in range(1025)]
    assert all(size >= count for count, size in enumerate(sizes))
    assert all(size - count < max(8, count * 0.5) for count, size in enumerate(sizes))
    assert sizes == sorted(sizes)
    assert len(set(sizes)) < 40
    assert sizes[:9] == list(range(9))
