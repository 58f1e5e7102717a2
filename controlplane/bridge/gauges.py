"""Once a second: how many requests wait in this gateway, and how many on nodes for a first token;
and what nodes have drafted meanwhile.

It counts, it does not estimate: every request is either in the waiting room or a job of a link.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator

from controlplane.bridge.recorder import PostgresRecorder
from controlplane.bridge.series import ALL_MODELS, Depth
from controlplane.gateway.world import World
from controlplane.kernel.gauges import SAMPLE_S


class WaitingSampler:
    """Feeds the recorder until it is closed."""

    def __init__(self, world: World, recorder: PostgresRecorder) -> None:
        self._world = world
        self._recorder = recorder
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


def waiting_now(world: World) -> Iterator[Depth]:
    """All models together, then each that is served or waited for."""
    in_gateway = world.waiting.depths()
    on_nodes: Counter[str] = Counter()
    for link in world.fleet.nodes().values():
        on_nodes.update(link.jobs.unanswered())
    yield Depth(ALL_MODELS, in_gateway.total(), on_nodes.total())
    for model in {*world.fleet.models(), *in_gateway, *on_nodes}:
        yield Depth(model, in_gateway[model], on_nodes[model])
