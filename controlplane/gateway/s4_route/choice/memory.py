"""What stage 4 remembers between requests: means, rings, and who the nodes are."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from controlplane.gateway.nodes.link import NodeLink
from controlplane.gateway.nodes.measured.means import FleetMeans
from controlplane.gateway.s4_route.choice.ring import Ring

MODELS_MAX = 256
ROSTERS_MAX = 16
RINGS_MAX = 32

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Roster:
    """Names and accounts of some nodes, in their order."""

    __slots__ = ("accounts", "names")

    def __init__(self, nodes: tuple[NodeLink, ...]) -> None:
        self.names = [link.identity.name for link in nodes]
        self.accounts = [link.account for link in nodes]


class RoutingMemory:
    """Each thing is made when first asked for; at a bound the one not used longest is forgotten, of
    rosters the oldest.
    """

    def __init__(self) -> None:
        self._means: OrderedDict[str, FleetMeans] = OrderedDict()
        self._rosters: OrderedDict[tuple[NodeLink, ...], Roster] = OrderedDict()
        self._rings: OrderedDict[tuple[str, ...], Ring] = OrderedDict()

    def means(self, model: str) -> FleetMeans:
        return _kept(self._means, model, FleetMeans, MODELS_MAX)

    def roster(self, nodes: tuple[NodeLink, ...]) -> Roster:
        """Of these nodes: mostly the same from request to request, and many."""
        found = self._rosters.get(nodes)
        if found is None:
            found = self._rosters[nodes] = Roster(nodes)
            _bound(self._rosters, ROSTERS_MAX)
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
