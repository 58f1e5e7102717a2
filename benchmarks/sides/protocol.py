"""One JSON object a line each way between the benchmark and an engine in its own process.

The child answers on the standard output it was started with; whatever else writes there meanwhile
goes to standard error, since engines print as they please.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from math import inf
from typing import Any

from controlplane.insights.load.samples import percentile

# A child that takes longer is killed, unless its own rate tells that its work takes longer; vLLM
# compiles before it is ready.
ANSWER_S_MAX = 600.0
# So many times what work takes at the slowest rate that the child has had.
PATIENCE = 4.0
STOP_S_MAX = 20.0


@dataclass
class Timed:
    """One run: wall time, tokens out, times to first tokens, gaps between outputs of a request."""

    seconds: float = 0.0
    tokens: int = 0
    first_s: list[float] = field(default_factory=list)
    gap_s: list[float] = field(default_factory=list)

    def figures(self) -> dict[str, float]:
        """The benchmark's figures of a width."""
        return {
            "out_tok_s": round(self.tokens / self.seconds, 1),
            "ttft_p95_ms": round(percentile(self.first_s, 0.95) * 1e3, 2),
            "itl_p99_ms": round(percentile(self.gap_s, 0.99) * 1e3, 2),
        }


class Watch:
    """Stamps the outputs of one run as they come."""

    def __init__(self) -> None:
        self.timed = Timed()
        self._began = time.perf_counter()
        self._last: dict[int, float] = {}
        self.first_s: dict[int, float] = {}

    def sent(self, request: int) -> None:
        """The request was handed to the engine."""
        self._last[request] = time.perf_counter()

    def came(self, request: int, tokens: int) -> None:
        """The engine gave tokens of it."""
        now = time.perf_counter()
        passed = now - self._last[request]
        if request in self.first_s:
            self.timed.gap_s.append(passed)
        else:
            self.first_s[request] = passed
        self._last[request] = now
        self.timed.tokens += tokens

    def done(self) -> Timed:
        """Everything has come."""
        self.timed.seconds = time.perf_counter() - self._began
        self.timed.first_s = list(self.first_s.values())
        return self.timed


Operation = Callable[..., Any]


def answer_until_closed(load: Callable[[], dict[str, Operation]]) -> None:
    """Load, then serve operations by name until standard input ends; the child's whole life."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    operations = load()
    out.write(json.dumps("ready") + "\n")
    for line in sys.stdin:
        name, arguments = json.loads(line)
        result = operations[name](**arguments)
        out.write(json.dumps(asdict(result) if isinstance(result, Timed) else result) + "\n")


class Side:
    """The parent's end. Use as a context manager; raises `RuntimeError` when the child is gone."""

    def __init__(self, name: str, argv: list[str], environment: dict[str, str]) -> None:
        self.name = name
        self._child = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, **environment},
        )
        self._slowest_per_s = inf

    def __enter__(self) -> Side:
        self._read(ANSWER_S_MAX)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._child.stdin is not None
        self._child.stdin.close()
        try:
            self._child.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()

    def call(self, operation: str, *, tokens: int = 0, **arguments: Any) -> Any:
        """Run one operation in the child and return its answer.

        `tokens` are those that it gives: how long they may take follows the calls before.
        """
        assert self._child.stdin is not None
        began_s = time.monotonic()
        self._child.stdin.write(json.dumps((operation, arguments)) + "\n")
        self._child.stdin.flush()
        answer = self._read(max(ANSWER_S_MAX, PATIENCE * tokens / self._slowest_per_s))
        if tokens:
            rate = tokens / (time.monotonic() - began_s)
            self._slowest_per_s = min(rate, self._slowest_per_s)
        return answer

    def _read(self, within_s: float) -> Any:
        assert self._child.stdout is not None
        overdue = threading.Timer(within_s, self._child.kill)
        overdue.start()
        try:
            line = self._child.stdout.readline()
        finally:
            overdue.cancel()
        if not line:
            raise RuntimeError(f"{self.name} ended with status {self._child.wait()}")
        return json.loads(line)
