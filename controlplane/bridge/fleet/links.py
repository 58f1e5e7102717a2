"""Every other second: what this gateway sees of its nodes, and how fresh what it writes is."""

import asyncio
from collections.abc import Callable

from controlplane.bridge.fleet.store import FleetStore
from controlplane.bridge.record.recorder import PostgresRecorder
from controlplane.bridge.record.waiting import queue_now
from controlplane.gateway.app_state import AppState
from controlplane.gateway.nodes.link import NodeLink

REPORT_S = 2.0


class LinkReporter:
    """Tells the database until it is closed; a view that cannot be told is not kept."""

    def __init__(
        self,
        state: AppState,
        store: FleetStore,
        recorder: PostgresRecorder,
        *,
        limits_shared: Callable[[], bool],
    ) -> None:
        self._limits_shared = limits_shared
        self._state = state
        self._store = store
        self._recorder = recorder
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="link reporter")

    async def close(self) -> None:
        """Take this gateway's view back: its links are closed next."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
            await self._store.links(self._state.fleet.gateway, [], {})

    async def _run(self) -> None:
        fleet = self._state.fleet
        while True:
            links = [
                {"node": link.identity.id, "facts": link_facts(link)}
                for link in fleet.nodes().values()
            ]
            told = queue_now(self._state) | {
                "recorder": self._recorder.facts(),
                "limits_shared": self._limits_shared(),
            }
            await self._store.links(fleet.gateway, links, told)
            await asyncio.sleep(REPORT_S)


def link_facts(link: NodeLink) -> dict[str, object]:
    """What pages show of a link; load figures are the node's own, as of its last step."""
    load, breaker = link.load, link.breaker.facts
    facts: dict[str, object] = {
        "takes_jobs": link.takes_jobs,
        "credits": link.account.credits,
        "active": link.account.active,
        "queued_tokens": link.account.queued_tokens,
        "breaker": breaker.state,
        "breaker_cause": breaker.cause,
        "kv_blocks": link.hello.kv_blocks,
        "epoch": link.hello.epoch,
    }
    if load is not None:
        facts |= {
            "running": load.running,
            "waiting": load.waiting,
            "kv_free_blocks": load.kv_free_blocks,
            "step_us": load.step_us,
        }
        if load.shares is not None:
            facts |= {"decode_share": load.shares.decode, "prefill_share": load.shares.prefill}
    return facts
