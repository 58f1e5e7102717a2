"""One real gateway process with many simulated nodes on real sockets: CPU, memory, decisions.

The nodes' rate is doubled until their frames take more than half of the process, or come late;
decisions are made at the highest rate that left the other half for requests.
"""

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
STEPS_S_MIN = 1.25
STEPS_OF_AN_EVENT = 5
EVENT_BLOCKS = 32
CORES_MAX = 0.5
# Frames that come, beside those that are due; of each node may come a pong a second, too.
LATE_SHARE_MAX = 0.1
CALM_TRIES_MAX = 10
SETTLE_S = 4.0
MEASURE_S = 6.0
ANSWER_S_MAX = 120.0


class Links:
    """A gateway process and the nodes on it."""

    def __init__(self, port: int, pid: int, nodes: subprocess.Popen[bytes]) -> None:
        self.port, self.pid, self._nodes = port, pid, nodes

    def send(self, steps_s: float) -> None:
        """From now on each node sends so many frames of load a second."""
        assert self._nodes.stdin is not None
        self._nodes.stdin.write(f"{steps_s}\n".encode())
        self._nodes.stdin.flush()
        time.sleep(SETTLE_S)

    def ask(self, path: str) -> dict[str, Any]:
        """What the gateway answers."""
        address = f"http://127.0.0.1:{self.port}{path}"
        with urllib.request.urlopen(address, timeout=ANSWER_S_MAX) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    def frames(self) -> dict[str, float]:
        """Share of a core, and frames that came in a second, over a while."""
        began_s, used_s, came = time.monotonic(), cpu_s(self.pid), self.ask("/frames")["frames"]
        time.sleep(MEASURE_S)
        spent_s, used_s = time.monotonic() - began_s, cpu_s(self.pid) - used_s
        came = self.ask("/frames")["frames"] - came
        return {"cores": round(used_s / spent_s, 3), "frames_s": round(came / spent_s)}


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
        steps_of_an_event=STEPS_OF_AN_EVENT,
        event_blocks=EVENT_BLOCKS,
    )
    with serve(APP) as (port, pid):
        empty_mib = rss_mib(pid)
        with linked(port, pid, plan) as links:
            rate, rates = climb(links, len(secrets), steps_s)
            return links.ask("/decisions") | {
                "steps_s_of_a_node": rate,
                "cores_of_frames": rates[f"{rate:g}"]["cores"],
                "rates": rates,
                "rss_mib": round(rss_mib(pid)),
                "rss_mib_empty": round(empty_mib),
            }


def climb(links: Links, nodes: int, most: float) -> tuple[float, dict[str, dict[str, float]]]:
    """The highest rate that fits, or the lowest of all; and what was found at each.

    The nodes send at that rate afterwards, and what was late at a higher one has come.
    """
    rate, rates = min(STEPS_S_MIN, most), dict[str, dict[str, float]]()
    kept = rate
    while rate <= most:
        links.send(rate)
        found = rates[f"{rate:g}"] = links.frames()
        if not fits(found, nodes, rate):
            links.send(kept)
            for _ in range(CALM_TRIES_MAX):
                if fits(links.frames(), nodes, kept):
                    break
            break
        kept, rate = rate, rate * 2
    return kept, rates


def fits(found: dict[str, float], nodes: int, steps_s: float) -> bool:
    """Half of the process is left, and all frames come as they are sent: none is late."""
    due = nodes * steps_s * (1 + 1 / STEPS_OF_AN_EVENT)
    least, most = due * (1 - LATE_SHARE_MAX), due * (1 + LATE_SHARE_MAX) + nodes
    return found["cores"] <= CORES_MAX and least <= found["frames_s"] <= most


@contextlib.contextmanager
def linked(port: int, pid: int, plan: LinkPlan) -> Iterator[Links]:
    """The nodes, once all have been let in; they send nothing yet."""
    argv = [sys.executable, "-m", "benchmarks.fleet.linked", str(port)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        try:
            assert child.stdin is not None and child.stdout is not None
            child.stdin.write(msgspec.json.encode(plan) + b"\n")
            child.stdin.flush()
            if child.stdout.readline().decode().strip() != READY:
                raise RuntimeError("the simulated nodes ended")
            yield Links(port, pid, child)
        finally:
            child.terminate()
