"""Once a second: how many requests wait in this gateway, how urgent and how old, and how many on
nodes for a first token; how busy nodes are, and what they have counted in the meantime.

It counts, it does not estimate: every request is either in the waiting room or a job of a link.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator

from controlplane.bridge.record.node_watch import NodeWatch
from controlplane.bridge.record.recorder import PostgresRecorder
from controlplane.bridge.record.series import ALL_MODELS, QueueDepth
from controlplane.gateway.app_state import AppState
from controlplane.gateway.s4_route.queue.queue import QueueKind, WaitingDepth
from controlplane.kernel.clock import monotonic_s
from controlplane.kernel.gauges import SAMPLE_S
from controlplane.kernel.rules import PRIORITIES

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
            self._task.cancel()
            await asyncio.wait({self._task})
            self._sample()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            self._sample()
            # Paced by the clock, so that a slow turn of the loop does not stretch the next second.
            due = max(due + SAMPLE_S, loop.time())
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
