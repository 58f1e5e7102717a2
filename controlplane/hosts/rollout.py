"""Which replica comes and which goes next; pure. An old one goes when enough of the new serve."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Stand:
    """A replica that is not leaving: of the wanted generation, and ready to serve or not."""

    id: str
    current: bool
    ready: bool


@dataclass(frozen=True)
class Moves:
    """So many to add, and those to drain."""

    add: int = 0
    drain: tuple[str, ...] = ()


def next_moves(standings: Sequence[Stand], wanted: int) -> Moves:
    """One step towards `wanted` replicas of the current generation; oldest come first."""
    current = [each for each in standings if each.current]
    old = [each for each in standings if not each.current]
    if not wanted:
        return Moves(drain=tuple(each.id for each in standings))
    if old:
        serving = sum(each.ready for each in current)
        more = len(current) < wanted and serving == len(current)
        surplus = max(0, serving + len(old) - wanted)
        return Moves(int(more), _first(old, surplus))
    if len(current) > wanted:
        return Moves(drain=_first(current[::-1], len(current) - wanted))
    return Moves(wanted - len(current))


def _first(standings: Sequence[Stand], count: int) -> tuple[str, ...]:
    """Those that serve nobody go first."""
    return tuple(each.id for each in sorted(standings, key=lambda each: each.ready)[:count])
