"""Once a second: how many requests wait in this gateway, how urgent and how old, and how many on
nodes for a first token; how busy nodes are, and what they have counted in the meantime.

It counts, it does not estimate: every request is either in the waiting room or a job of a link.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator

from controlplane.bridge.record.recorder import PostgresRecorder
from controlplane.bridge.record.series import ALL_MODELS, GaugeSample, QueueDepth
from controlplane.gateway.app_state import AppState
from controlplane.gateway.nodes.link import NodeLink
from controlplane.gateway.s4_route.queue.queue import QueueKind, WaitingDepth
from controlplane.kernel import measures
from controlplane.kernel.clock import monotonic_s
from controlplane.kernel.rules import PRIORITIES
from controlplane.kernel.tasks import end

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
                sums[place, measures.CREDITS] += link.account.credits
                sums[place, measures.RUNNING] += link.load.running if link.load else 0
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
                yield from _event(link, measures.BREAKER_OPENED)
            # What was there when this gateway started has started before.
            started = not first and (self._epochs or {}).get(name) != link.hello.epoch
            if started and link.hello.cold_start_ms and self._tells():
                yield from _event(link, measures.COLD_START)
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
    yield measures.BATCH, link.load.running
    if blocks := link.hello.kv_blocks:
        yield measures.KV_USED_PERMILLE, PERMILLE * (blocks - link.load.kv_free_blocks) // blocks


def _event(link: NodeLink, name: str) -> Iterator[GaugeSample]:
    for place in _places(link):
        yield GaugeSample(*place, name, 1)


MS_PER_S = 1000


class WaitingSampler:
    """Feeds the recorder until it is closed."""

    def __init__(self, state: AppState, recorder: PostgresRecorder) -> None:
        self._state = state
        self._recorder = recorder
        self._nodes = NodeWatch(state)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="waiting sampler")

    async def close(self) -> None:
        if self._task is not None:
            await end(self._task)
            self._sample()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            self._sample()
            # Paced by the clock, so that a slow turn of the loop does not stretch the next second.
            due = max(due + measures.SAMPLE_S, loop.time())
            await asyncio.sleep(due - loop.time())

    def _sample(self) -> None:
        self._recorder.sample(list(waiting_now(self._state)))
        self._recorder.drafts(self._state.fleet.drafts.take())
        self._recorder.note(self._nodes.samples())


def waiting_now(state: AppState) -> Iterator[QueueDepth]:
    """All models together, then each that is served or waited for."""
    kinds = state.waiting.kinds()
    on_nodes: Counter[str] = Counter()
    for link in state.fleet.nodes().values():
        on_nodes.update(link.jobs.unanswered())
    yield _depth(ALL_MODELS, kinds, on_nodes.total())
    of_model: dict[str, dict[QueueKind, WaitingDepth]] = {}
    for kind, waits in kinds.items():
        of_model.setdefault(kind[0], {})[kind] = waits
    for model in {*state.fleet.models(), *of_model, *on_nodes}:
        yield _depth(model, of_model.get(model, {}), on_nodes[model])


def _depth(model: str, kinds: dict[QueueKind, WaitingDepth], on_nodes: int) -> QueueDepth:
    priorities = Counter(dict.fromkeys(PRIORITIES, 0))
    for (_, priority, _), waits in kinds.items():
        priorities[priority] += waits.waiting
    low, normal, high = (priorities[each] for each in PRIORITIES)
    oldest_s = max((waits.oldest_s for waits in kinds.values()), default=0.0)
    oldest_ms = round(oldest_s * MS_PER_S)
    return QueueDepth(model, priorities.total(), on_nodes, (low, normal, high), oldest_ms)


def queue_now(state: AppState) -> dict[str, object]:
    """Who waits in this gateway at this moment: by model, by pool, and by tenant with the longest
    wait; and pools that a request has just found without a node.
    """
    models: Counter[str] = Counter()
    tenants: dict[str, tuple[int, int]] = {}
    for (model, _, tenant), waits in state.waiting.kinds().items():
        models[model] += waits.waiting
        waiting, oldest_ms = tenants.get(tenant, (0, 0))
        oldest_ms = max(oldest_ms, round(waits.oldest_s * MS_PER_S))
        tenants[tenant] = (waiting + waits.waiting, oldest_ms)
    return {
        "models": models,
        "pools": state.waiting.pools(),
        "unmet": state.unmet.pools(monotonic_s()),
        "tenants": tenants,
    }
