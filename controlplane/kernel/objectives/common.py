"""What a few requests have in common that others have not. Pure arithmetic over counted values."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import comb
from typing import NamedTuple

# Fewer of a kind say nothing, and neither does what chance alone would bring about this often.
OF_A_KIND_MIN = 3
CHANCE_MAX = 0.01
SHOWN_MAX = 6

Values = Mapping[str, str]


class CommonValue(NamedTuple):
    """`having` of the `worst` have this value of a dimension, and `rest_share` of all others."""

    dimension: str
    value: str
    having: int
    worst: int
    rest_share: float


def in_common(worst: Sequence[Values], everyone: Iterable[tuple[Values, int]]) -> list[CommonValue]:
    """Values that are over-represented among the worst, the most telling first.

    `everyone` are all requests of the time in groups, with how many each has, the worst included.
    """
    whole: Counter[tuple[str, str]] = Counter()
    total = 0
    for values, requests in everyone:
        total += requests
        for pair in values.items():
            whole[pair] += requests
    rest = total - len(worst)
    if rest < len(worst):
        return []
    having = Counter(pair for values in worst for pair in values.items() if pair[1])
    found = []
    for pair, count in having.items():
        others = max(0, whole[pair] - count)
        # One more than were seen: that none was seen does not say that none can be.
        chance = _at_least(count, len(worst), min(1.0, (others + 1) / (rest + 1)))
        if count >= OF_A_KIND_MIN and chance <= CHANCE_MAX:
            found.append((chance, CommonValue(*pair, count, len(worst), others / rest)))
    return [common for _, common in sorted(found)[:SHOWN_MAX]]


def _at_least(count: int, tries: int, share: float) -> float:
    """How likely it is that so many of the tries or more hit by chance."""
    return sum(
        comb(tries, hits) * share**hits * (1 - share) ** (tries - hits)
        for hits in range(count, tries + 1)
    )
