"""The real gateway, which on `GET /decisions` also times its own decisions among its nodes.

Each is what a request costs in stages 2 and 4 without waiting: the nodes that may serve it, room
there, the lookup of its prompt, the choice and the receipt. They are made one by one between the
frames of the nodes, as those of requests are. `GET /frames` counts these.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any
from unittest.mock import patch

from benchmarks.fleet.blocks import BLOCK_SIZE, CHAINS, chain
from benchmarks.fleet.linked import MODEL, POOL, REGION
from controlplane.asgi import Entrance, answer, application
from controlplane.gateway.call import Call
from controlplane.gateway.nodes.models import Approval
from controlplane.gateway.nodes.registry import Fleet
from controlplane.gateway.s4_route.choice.memory import RoutingMemory
from controlplane.gateway.s4_route.choice.sought import Sought
from controlplane.gateway.s4_route.node import pick_node
from controlplane.gateway.s4_route.queue.request import QueuedRequest
from controlplane.gateway.s4_route.saturation import WaitingRoom

__all__ = ["application"]

DECISIONS = 500
PAUSE_S = 0.01
NEW_TOKENS = 500

_http = Entrance._http


async def watched(self: Entrance, scope: Any, receive: Any, send: Any) -> None:
    """All paths but two are the gateway's."""
    fleet: Fleet = self.gateway.fleet  # type: ignore[union-attr]
    if scope["path"] == "/decisions":
        await answer(send, 200, await decisions(fleet))
    elif scope["path"] == "/frames":
        came = sum(link.session.received for link in fleet.nodes().values())
        await answer(send, 200, {"frames": came})
    else:
        await _http(self, scope, receive, send)


async def decisions(fleet: Fleet) -> dict[str, Any]:
    """Percentiles in microseconds: CPU and wall time of a decision, and how late the loop is."""
    took, wall, late, memory = [], [], [], RoutingMemory()
    fleet.approve({MODEL: Approval()})
    room, line = WaitingRoom(fleet), (MODEL, POOL, REGION)
    claim = QueuedRequest(tenant="measured", work_tokens=1, queue_s=0.0, deadline_s=1.0)
    for number in range(DECISIONS):
        due = time.perf_counter_ns() + round(PAUSE_S * 1e9)
        await asyncio.sleep(PAUSE_S)
        late.append(time.perf_counter_ns() - due)
        hashes = chain(number % CHAINS)
        tokens = len(hashes) * BLOCK_SIZE + NEW_TOKENS
        sought = Sought(model=MODEL, rule="direct", tokens=tokens, chains={BLOCK_SIZE: hashes})
        began_s, began = time.perf_counter_ns(), time.thread_time_ns()
        call, group = Call([]), fleet.models()[MODEL].groups(POOL, frozenset())[REGION]
        nodes = room.pass_by(call, line, group.nodes, claim)
        pick_node(call, sought, fleet, memory, nodes=nodes)
        took.append(time.thread_time_ns() - began)
        wall.append(time.perf_counter_ns() - began_s)
    index = fleet.index(BLOCK_SIZE)
    return {
        "nodes": len(fleet.nodes()), "served": len(fleet.candidates(MODEL)),
        "unknown": len(index.unknown), "blocks": len(index),
        "decision_us": _percentiles(took), "decision_wall_us": _percentiles(wall),
        "late_us": _percentiles(late),
    }  # fmt: skip


def _percentiles(values: list[int]) -> dict[str, float]:
    ordered = sorted(values)
    return {f"p{p}": ordered[len(ordered) * p // 100] / 1e3 for p in (50, 99)}


patch.object(Entrance, "_http", watched).start()
