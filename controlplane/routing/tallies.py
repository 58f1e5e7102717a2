"""What dry runs have in common: tallies of recorded requests, by whose the requests are."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from controlplane.kernel.ids import public_id

GROUPS_SHOWN_MAX = 20


@dataclass
class TrafficTally(ABC):
    """Counts and amounts of some requests."""

    requests: int = 0

    def add(self, other: Self) -> None:
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)

    @property
    @abstractmethod
    def change(self) -> tuple[int, ...]:
        """How much becomes another; what has most is told first."""


AnyTally = TypeVar("AnyTally", bound=TrafficTally)
Group = TypeVar("Group")


def groups_of(
    kind: Callable[[str, str, AnyTally], Group],
    tallies: Mapping[Any, AnyTally],
    names: Mapping[Any, str],
    prefix: str = "",
    unnamed: str = "",
) -> list[Group]:
    """Groups of an id, a name and a tally; with a `prefix` the ids are public ones.

    Those that `names` lacks are called by their id, after `unnamed`.
    """
    shown = {one: public_id(prefix, one) if prefix else one for one in most_changed(tallies)}
    return [kind(told, names.get(one, unnamed + told), tallies[one]) for one, told in shown.items()]


def most_changed(tallies: Mapping[Any, AnyTally]) -> list[Any]:
    """Those with most change first, then those with most requests."""

    def rank(one: Any) -> tuple[int, ...]:
        return *tallies[one].change, tallies[one].requests

    return sorted(tallies, key=rank, reverse=True)[:GROUPS_SHOWN_MAX]
