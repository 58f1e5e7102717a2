"""Once a second: how many requests wait in this gateway, how urgent and how old, and how many on
nodes for a first token; how busy nodes are, and what they have counted meanwhile.

It counts, it does not estimate: every request is either in the waiting room or a job of a link.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator

from controlplane.bridge.node_watch import NodeWatch
from controlplane.bridge.recorder import PostgresRecorder
from controlplane.bridge.series import ALL_MODELS, Depth
from controlplane.gateway.waiting.queue import Depth as Waits
from controlplane.gateway.waiting.queue import Kind
from controlplane.gateway.world import World
from controlplane.kernel.clock import monotonic_s
from controlplane.kernel.gauges import SAMPLE_S
from controlplane.kernel.rules import PRIORITIES

MS_PER_S = 1000


class WaitingSampler:
    """Feeds the recorder until it is closed."""

    def __init__(self, world: World, recorder: PostgresRecorder) -> None:
        self._world = world
        self._recorder = recorder
        self._nodes = NodeWatch(world)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to sample; needs a running loop."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="waiting sampler")

    async def close(self) -> None:
        """Sample a last time."""
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
        self._recorder.sample(list(waiting_now(self._world)))
        self._recorder.drafts(self._world.fleet.drafts.take())
        self._recorder.note(self._nodes.samples())


def waiting_now(world: World) -> Iterator[Depth]:
    """All models together, then each that is served or waited for."""
    kinds = world.waiting.kinds()
    on_nodes: Counter[str] = Counter()
    for link in world.fleet.nodes().values():
        on_nodes.update(link.jobs.unanswered())
    yield _depth(ALL_MODELS, kinds, on_nodes.total())
    of_model: dict[str, dict[Kind, Waits]] = {}
    for kind, waits in kinds.items():
        of_model.setdefault(kind[0], {})[kind] = waits
    for model in {*world.fleet.models(), *of_model, *on_nodes}:
        yield _depth(model, of_model.get(model, {}), on_nodes[model])


def _depth(model: str, kinds: dict[Kind, Waits], on_nodes: int) -> Depth:
    priorities = Counter(dict.fromkeys(PRIORITIES, 0))
    for (_, priority, _), waits in kinds.items():
        priorities[priority] += waits.waiting
    low, normal, high = (priorities[each] for each in PRIORITIES)
    oldest_s = max((waits.oldest_s for waits in kinds.values()), default=0.0)
    oldest_ms = round(oldest_s * MS_PER_S)
    return Depth(model, priorities.total(), on_nodes, (low, normal, high), oldest_ms)


def queue_now(world: World) -> dict[str, object]:
    """Who waits in this gateway at this moment: by model, by pool, and by tenant with the longest
    wait; and pools that a request has just found without a node.
    """
    models: Counter[str] = Counter()
    tenants: dict[str, tuple[int, int]] = {}
    for (model, _, tenant), waits in world.waiting.kinds().items():
        models[model] += waits.waiting
        waiting, oldest_ms = tenants.get(tenant, (0, 0))
        oldest_ms = max(oldest_ms, round(waits.oldest_s * MS_PER_S))
        tenants[tenant] = (waiting + waits.waiting, oldest_ms)
    return {
        "models": models,
        "pools": world.waiting.pools(),
        "unmet": world.unmet.pools(monotonic_s()),
        "tenants": tenants,
    }
