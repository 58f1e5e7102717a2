"""What stage 4 remembers between requests: means, rings, and who the nodes are."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from controlplane.gateway.nodes.index import PrefixIndex
from controlplane.gateway.nodes.link import NodeLink
from controlplane.gateway.nodes.measured.account import NodeAccount
from controlplane.gateway.nodes.measured.loads import ManyLoads, Places
from controlplane.gateway.nodes.measured.means import FleetMeans
from controlplane.gateway.s4_route.choice.ring import Ring

MODELS_MAX = 256
ROSTERS_MAX = 16
RINGS_MAX = 32

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Roster:
    """Names and accounts of some nodes, in their order; `loads` where they are many."""

    def __init__(self, nodes: tuple[NodeLink, ...]) -> None:
        self.nodes = nodes
        self.names = [link.identity.name for link in nodes]
        self.accounts = [link.account for link in nodes]
        self.loads = ManyLoads.of(self.accounts)
        self._places: dict[PrefixIndex, Places] = {}

    @cached_property
    def by_name(self) -> dict[str, int]:
        """The place of each."""
        return {name: place for place, name in enumerate(self.names)}

    @cached_property
    def by_account(self) -> dict[NodeAccount, int]:
        """The place of each."""
        return {account: place for place, account in enumerate(self.accounts)}

    @cached_property
    def sorted_names(self) -> tuple[str, ...]:
        return tuple(sorted(self.names))

    def places_in(self, index: PrefixIndex) -> Places:
        """Where that index has each of them."""
        found = self._places.get(index)
        if found is None:
            found = self._places[index] = np.array([index.place(name) for name in self.names])
        return found


class RoutingMemory:
    """Each thing is made when first asked for; at a bound the one not used longest is forgotten."""

    def __init__(self) -> None:
        self._means: OrderedDict[str, FleetMeans] = OrderedDict()
        # By what the tuple is, not by what it holds: a roster keeps its own.
        self._rosters: OrderedDict[int, Roster] = OrderedDict()
        self._rings: OrderedDict[tuple[str, ...], Ring] = OrderedDict()

    def means(self, model: str) -> FleetMeans:
        return _kept(self._means, model, FleetMeans, MODELS_MAX)

    def roster(self, nodes: tuple[NodeLink, ...]) -> Roster:
        """Of these nodes: mostly the same tuple from request to request."""
        found = self._rosters.get(id(nodes))
        if found is None:
            found = self._rosters[id(nodes)] = Roster(nodes)
            _bound(self._rosters, ROSTERS_MAX)
        else:
            self._rosters.move_to_end(id(nodes))
        return found

    def ring(self, names: tuple[str, ...]) -> Ring:
        return _kept(self._rings, names, lambda: Ring(names), RINGS_MAX)


def _kept(kept: OrderedDict[Key, Value], key: Key, make: Callable[[], Value], most: int) -> Value:
    found = kept.get(key)
    if found is None:
        found = kept[key] = make()
        _bound(kept, most)
    kept.move_to_end(key)
    return found


def _bound(kept: OrderedDict[Any, Any], most: int) -> None:
    if len(kept) > most:
        kept.popitem(last=False)
