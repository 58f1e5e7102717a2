"""What a gateway sees of its nodes each second: how busy they are, breakers that have opened and
engines that have started since.
"""

from collections import Counter
from collections.abc import Iterator

from controlplane.bridge.record.series import ALL_MODELS, GaugeSample
from controlplane.gateway.app_state import AppState
from controlplane.gateway.nodes.link import NodeLink
from controlplane.kernel.gauges import BATCH, CREDITS, KV_USED_PERMILLE, RUNNING
from controlplane.kernel.measures import BREAKER_OPENED, COLD_START

PERMILLE = 1_000
Place = tuple[str, str]


class NodeWatch:
    """Compares each look with the one before; a node that has left is forgotten."""

    def __init__(self, state: AppState) -> None:
        self._state = state
        self._opened: dict[str, float] = {}
        self._epochs: dict[str, str] | None = None

    def samples(self) -> Iterator[GaugeSample]:
        """Of all models, of each model and of each of its pools."""
        links = self._state.fleet.approved_nodes()
        sums: Counter[tuple[Place, str]] = Counter()
        for link in links:
            for place in _places(link):
                sums[place, CREDITS] += link.account.credits
                sums[place, RUNNING] += link.load.running if link.load else 0
                for measure, value in _own_figures(link):
                    yield GaugeSample(*place, measure, value)
        for (place, measure), value in sums.items():
            yield GaugeSample(*place, measure, value)
        yield from self._events(links)

    def _events(self, links: list[NodeLink]) -> Iterator[GaugeSample]:
        opened, epochs, first = {}, {}, self._epochs is None
        for link in links:
            name, breaker = link.identity.name, link.breaker
            opened[name], epochs[name] = breaker.opened_s, link.hello.epoch
            if breaker.opened_s > self._opened.get(name, breaker.opened_s):
                yield from _event(link, BREAKER_OPENED)
            # What was there when this gateway started has started before.
            started = not first and (self._epochs or {}).get(name) != link.hello.epoch
            if started and link.hello.cold_start_ms and self._tells():
                yield from _event(link, COLD_START)
        self._opened, self._epochs = opened, epochs

    def _tells(self) -> bool:
        """All gateways see a node start, and one of them counts it."""
        fleet = self._state.fleet
        return all(fleet.gateway <= each.instance for each in fleet.gateways)


def _places(link: NodeLink) -> Iterator[Place]:
    model = link.hello.models[0].name
    yield ALL_MODELS, ""
    yield model, ""
    if link.hello.pool:
        yield model, link.hello.pool


def _own_figures(link: NodeLink) -> Iterator[tuple[str, int]]:
    if link.load is None:
        return
    yield BATCH, link.load.running
    if blocks := link.hello.kv_blocks:
        yield KV_USED_PERMILLE, PERMILLE * (blocks - link.load.kv_free_blocks) // blocks


def _event(link: NodeLink, name: str) -> Iterator[GaugeSample]:
    for place in _places(link):
        yield GaugeSample(*place, name, 1)
