"""Which start of each node is in force; those that a newer one has replaced never come back."""

from collections import OrderedDict

from controlplane.gateway.nodes.limits import FENCED_EPOCHS_MAX, NODES_MAX


class Epochs:
    """The epoch in force of every node, and those that it has fenced."""

    def __init__(self) -> None:
        self._current: dict[str, str] = {}
        self._fenced: OrderedDict[tuple[str, str], None] = OrderedDict()

    def take(self, node: str, epoch: str) -> bool:
        """Make an epoch current; False when a newer one has replaced it before."""
        if (node, epoch) in self._fenced:
            return False
        old = self._current.get(node)
        if old is not None and old != epoch:
            self._fenced[node, old] = None
            if len(self._fenced) > FENCED_EPOCHS_MAX * NODES_MAX:
                self._fenced.popitem(last=False)
        self._current[node] = epoch
        return True
