"""What is known of each node by its name, for longer than one of its links lasts."""

from collections.abc import Callable

from controlplane.gateway.nodes.limits import NODES_MAX
from controlplane.gateway.nodes.measured.breaker import EJECT_S_MAX, Breaker
from controlplane.gateway.nodes.measured.times import Spread, Times
from controlplane.kernel.clock import monotonic_s


class KnownNode:
    """One node: whether it gets work, how long it takes, and how long it is silent with work."""

    __slots__ = ("_times", "breaker", "left_s", "quiet")

    def __init__(self, breaker: Breaker) -> None:
        self.breaker = breaker
        self.quiet = Spread()
        self.left_s: float | None = None
        self._times: dict[str, Times] = {}

    def times(self, model: str) -> Times:
        times = self._times.get(model)
        if times is None:
            times = self._times[model] = Times()
        return times


class KnownNodes:
    """All of them; one that has left is forgotten as late as its breaker would forget."""

    def __init__(self, *, eject_s: float, changed: Callable[[], None]) -> None:
        self._eject_s = eject_s
        self._changed = changed
        self._nodes: dict[str, KnownNode] = {}

    def find(self, name: str) -> KnownNode:
        """What is known of a node, or a sheet to write it on."""
        known = self._nodes.get(name)
        return known or KnownNode(Breaker(name, eject_s=self._eject_s, changed=self._changed))

    def join(self, name: str, known: KnownNode) -> None:
        """It is here: a new link is a new chance."""
        self._nodes[name] = known
        known.left_s = None
        known.breaker.probe()
        if len(self._nodes) > 2 * NODES_MAX:
            gone = (each for each, its in self._nodes.items() if its.left_s is not None)
            del self._nodes[next(gone)]

    def leave(self, name: str) -> None:
        self._nodes[name].left_s = monotonic_s()

    def tick(self) -> None:
        """Let breakers see the time, and forget."""
        now = monotonic_s()
        for name, known in list(self._nodes.items()):
            known.breaker.tick()
            if known.left_s is not None and now - known.left_s > EJECT_S_MAX:
                del self._nodes[name]
