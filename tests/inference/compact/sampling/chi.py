"""Pearson's chi-square test against known probabilities, for draws with fixed seeds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Standard normal quantile: a right sampler fails once in about 30,000 choices of seeds.
QUANTILE = 4.0


def chi_square(counts: Mapping[Any, int], shares: Mapping[Any, float], of: int) -> float:
    """The statistic over all cells; infinite where something was drawn that has no share."""
    if any(count and not shares.get(cell) for cell, count in counts.items()):
        return float("inf")
    expected = {cell: share * of for cell, share in shares.items() if share}
    return sum((counts.get(cell, 0) - count) ** 2 / count for cell, count in expected.items())


def chi_square_limit(cells: int) -> float:
    """What the statistic stays below, by Wilson and Hilferty's approximation."""
    freedom = max(cells - 1, 1)
    spread = 2.0 / (9.0 * freedom)
    return float(freedom * (1.0 - spread + QUANTILE * spread**0.5) ** 3)
