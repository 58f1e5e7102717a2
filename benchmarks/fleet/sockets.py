"""One real gateway process with many simulated nodes on real sockets: CPU, memory, decisions."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from django.utils.module_loading import import_string

from benchmarks.fleet.linked import POOL, READY, LinkPlan, name_of
from benchmarks.machine import cpu_s, pin, rss_mib
from benchmarks.stack import OTHER_CORE, serve, stack

APP = "benchmarks.fleet.watched:application"
KV_BLOCKS = 25_000
STEPS_S = 20.0
STEPS_OF_AN_EVENT = 5
EVENT_BLOCKS = 32
SETTLE_S = 8.0
ANSWER_S_MAX = 120.0


def measure(counts: Sequence[int], *, steps_s: float = STEPS_S) -> dict[str, Any]:
    """By number of nodes what one gateway process needs; the gateway has one core to itself."""
    pin(0, OTHER_CORE)
    with stack():
        made = credentials(max(counts))
        return {str(count): measure_one(made[:count], steps_s) for count in counts}


def credentials(nodes: int) -> list[str]:
    """Of new nodes, which staff let in."""
    create = import_string("controlplane.fleet.services.node_credential_create")
    actor = import_string("controlplane.core.audit.entries.OPERATOR")
    made = (
        create(actor=actor, name=name_of(each), pool=POOL, models=None) for each in range(nodes)
    )
    return [each.secret for each in made]


def measure_one(secrets: list[str], steps_s: float) -> dict[str, Any]:
    """A fresh gateway and its nodes, until the decisions are made."""
    plan = LinkPlan(
        credentials=secrets,
        blocks=KV_BLOCKS,
        steps_s=steps_s,
        events_s=steps_s / STEPS_OF_AN_EVENT,
        event_blocks=EVENT_BLOCKS,
    )
    with serve(APP) as (port, pid):
        empty_mib = rss_mib(pid)
        with linked(port, plan):
            time.sleep(SETTLE_S)
            began_s, used_s = time.monotonic(), cpu_s(pid)
            time.sleep(SETTLE_S)
            cores = (cpu_s(pid) - used_s) / (time.monotonic() - began_s)
            address = f"http://127.0.0.1:{port}/decisions"
            with urllib.request.urlopen(address, timeout=ANSWER_S_MAX) as answer:
                found: dict[str, Any] = json.load(answer)
            found |= {
                "cores_of_frames": round(cores, 3),
                "rss_mib": round(rss_mib(pid)),
                "rss_mib_empty": round(empty_mib),
                "frames_s_of_a_node": steps_s + plan.events_s,
                "blocks_s_of_a_node": plan.events_s * EVENT_BLOCKS,
            }
            return found


@contextlib.contextmanager
def linked(port: int, plan: LinkPlan) -> Iterator[None]:
    """The nodes, once all have been let in."""
    argv = [sys.executable, "-m", "benchmarks.fleet.linked", str(port)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        try:
            assert child.stdin is not None and child.stdout is not None
            child.stdin.write(msgspec.json.encode(plan))
            child.stdin.close()
            if child.stdout.readline().decode().strip() != READY:
                raise RuntimeError("the simulated nodes ended")
            yield
        finally:
            child.terminate()
