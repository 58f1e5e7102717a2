"""The vLLM servers: started once, caches emptied before each run, counters read."""

from __future__ import annotations

import contextlib
import json
import os
import re
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.machine import MIB, pin
from benchmarks.stack import GATEWAY_CORE
from tests.support.vllm_server import VllmServer, vllm_server

WINDOW = 4096
# Chunks of long prompts, between which others get their turn.
BATCHED_TOKENS = 1024
REQUESTS_MAX = 16
# Tokens in an event of a stream: nodes, gateway and databases share one core.
INTERVAL = 8
CALL_S_MAX = 30.0
SERVER_CORES = range(GATEWAY_CORE + 1, os.cpu_count() or 1)
COUNTERS = {
    "prompt": "prompt_tokens_total",
    "cached": "prompt_tokens_cached_total",
    "output": "generation_tokens_total",
}


@dataclass(frozen=True)
class Attached:
    """A server, and the channel of its cache events with that of their replays."""

    server: VllmServer
    kv_events: str

    @property
    def node_options(self) -> list[str]:
        """What makes a node stand before it."""
        return [
            "--engine", "remote", "--url", self.server.url, "--upstream-model", self.server.model,
            "--kv-events", self.kv_events,
        ]  # fmt: skip

    def forget(self) -> None:
        """Empty its prefix cache."""
        call = urllib.request.Request(self._root + "/reset_prefix_cache", method="POST")
        urllib.request.urlopen(call, timeout=CALL_S_MAX).close()

    def counted(self) -> dict[str, float]:
        """What it has counted by itself since it began, by `COUNTERS`."""
        with urllib.request.urlopen(self._root + "/metrics", timeout=CALL_S_MAX) as answer:
            text = answer.read().decode()
        found = {}
        for key, name in COUNTERS.items():
            values = re.findall(rf"^vllm:{name}(?:\{{.*\}})? (\S+)$", text, re.MULTILINE)
            found[key] = sum(map(float, values))
        return found

    @property
    def _root(self) -> str:
        return self.server.url.removesuffix("/v1")


@contextlib.contextmanager
def servers(
    folder: Path, count: int, *, kv_mib: int, block_tokens: int
) -> Iterator[list[Attached]]:
    """So many servers of the shipped model, on all cores but the gateway's: where a GPU computes, a
    gateway has its own.
    """
    # Where caches may be emptied from outside.
    os.environ["VLLM_SERVER_DEV_MODE"] = "1"

    def start(number: int) -> Attached:
        channel, replays = (f"ipc://{folder}/{kind}-{number}" for kind in ("kv", "replay"))
        events = {
            "enable_kv_cache_events": True, "publisher": "zmq", "endpoint": channel,
            "replay_endpoint": replays,
        }  # fmt: skip
        server = stack.enter_context(
            vllm_server(
                folder / f"vllm-{number}",
                "--dtype", "bfloat16", "--max-model-len", str(WINDOW),
                "--stream-interval", str(INTERVAL), "--enable-chunked-prefill",
                "--max-num-batched-tokens", str(BATCHED_TOKENS),
                "--max-num-seqs", str(REQUESTS_MAX), "--block-size", str(block_tokens),
                "--kv-cache-memory-bytes", str(kv_mib * MIB),
                "--kv-events-config", json.dumps(events),
            )
        )  # fmt: skip
        _keep_apart(server.process.pid)
        return Attached(server, f"{channel},{replays}")

    with contextlib.ExitStack() as stack, ThreadPoolExecutor(count) as pool:
        yield list(pool.map(start, range(count)))


def before_servers(pid: int) -> None:
    """A node stands beside its server, and computes before it: such a server would use a GPU."""
    pin(pid, *SERVER_CORES)
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(pid, os.SCHED_RR, os.sched_param(1))


def _keep_apart(pid: int) -> None:
    """A process and those that it started stay off the core of the gateway."""
    first = psutil.Process(pid)
    for process in (first, *first.children(recursive=True)):
        pin(process.pid, *SERVER_CORES)
