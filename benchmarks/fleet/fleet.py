"""The discrete events of a run: arrivals, steps of nodes, and frames on their way to gateways."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Protocol

import numpy as np

from benchmarks.fleet.chains import Request
from benchmarks.fleet.node import Frame, Gpu, VirtualNode

FRAME_DELAY_S = 0.05
# After the last arrival, what still waits is counted as if it came now.
DRAIN_S = 20.0
TTFT_DIGITS = 5


@dataclass(frozen=True, slots=True)
class Telling:
    """A frame as one gateway gets it: with requests and queued tokens of the other gateways."""

    frame: Frame
    others_active: int = 0
    others_queued_tokens: int = 0


class Policy(Protocol):
    """What one gateway runs: it chooses a node, and hears what nodes tell."""

    def pick(self, request: Request, now: float) -> int | None:
        """The node for a request, which counts as sent; None keeps it in the policy's own queue."""

    def hear(self, telling: Telling, now: float) -> Sequence[tuple[Request, int]]:
        """Take in what a node told; returns requests out of the queue, with their nodes."""


@dataclass(slots=True)
class Run:
    """What a run has done, over requests that arrived in the measured time."""

    ttft_s: list[float] = field(default_factory=list)
    prompt_tokens: int = 0
    cached_tokens: int = 0
    unserved: int = 0

    @property
    def hit_rate(self) -> float:
        """Share of prompt tokens that nodes had cached."""
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else 0.0

    def ttft_ms(self, percent: float) -> float:
        """A percentile of the time to the first token, over all requests."""
        return float(np.percentile(self.ttft_s, percent)) * 1e3 if self.ttft_s else 0.0


class Simulation:
    """Runs requests through gateways and nodes; frames reach every gateway a fixed time later."""

    def __init__(
        self,
        requests: Sequence[Request],
        policies: Sequence[Policy],
        gpus: Sequence[Gpu],
        *,
        frame_delay_s: float = FRAME_DELAY_S,
    ) -> None:
        self.nodes = [VirtualNode(number, gpu) for number, gpu in enumerate(gpus)]
        self.done: list[Request] = []
        self._policies = policies
        self._delay_s = frame_delay_s
        self._coming: list[tuple[float, int, Request]] = []
        self._steps: list[tuple[float, int]] = []
        self._telling: deque[tuple[float, Frame, list[tuple[int, int]]]] = deque()
        self._active = [[0] * len(policies) for _ in gpus]
        self._queued = [[0] * len(policies) for _ in gpus]
        self._numbers = 0
        for request in requests:
            self._expect(request)

    def run(self, until: float) -> None:
        """Go on until a time, or until nothing is left to do."""
        while (now := self._next_at()) <= until:
            if self._telling and self._telling[0][0] == now:
                self._tell(now)
            elif self._steps and self._steps[0][0] == now:
                self._step()
            else:
                _, _, request = heappop(self._coming)
                self.done.append(request)
                number = self._policies[request.gateway].pick(request, now)
                if number is not None:
                    self._send(request, number, now)

    def _next_at(self) -> float:
        at = float("inf")
        if self._telling:
            at = self._telling[0][0]
        if self._steps and self._steps[0][0] < at:
            at = self._steps[0][0]
        if self._coming and self._coming[0][0] < at:
            at = self._coming[0][0]
        return at

    def _expect(self, request: Request) -> None:
        self._numbers += 1
        heappush(self._coming, (request.at, self._numbers, request))

    def _send(self, request: Request, number: int, now: float) -> None:
        node = self.nodes[number]
        due = node.wakes_at
        node.submit(request, now)
        self._active[number][request.gateway] += 1
        self._queued[number][request.gateway] += request.expected_tokens
        if node.wakes_at != due:
            heappush(self._steps, (node.wakes_at, number))

    def _step(self) -> None:
        at, number = heappop(self._steps)
        node = self.nodes[number]
        if node.wakes_at != at:
            # Cut short since: its earlier end has been taken already.
            return
        frame = node.finish_steps()
        if node.wakes_at != float("inf"):
            heappush(self._steps, (node.wakes_at, number))
        active, queued = self._active[number], self._queued[number]
        for chunk in frame.chunks:
            if chunk.last:
                queued[chunk.request.gateway] -= chunk.request.expected_tokens
        for request in frame.ended:
            active[request.gateway] -= 1
            if request.follow is not None:
                request.follow.at = max(request.follow.at, at)
                self._expect(request.follow)
        totals = []
        if len(self._policies) > 1:
            totals = list(zip(active, queued, strict=True))
        self._telling.append((at + self._delay_s, frame, totals))

    def _tell(self, now: float) -> None:
        _, frame, totals = self._telling.popleft()
        active = sum(total[0] for total in totals)
        queued = sum(total[1] for total in totals)
        for number, policy in enumerate(self._policies):
            own = totals[number] if totals else (0, 0)
            telling = Telling(frame, active - own[0], queued - own[1])
            for request, node in policy.hear(telling, now):
                self._send(request, node, now)


def measured(requests: Sequence[Request], since: float, until: float, ended: float) -> Run:
    """The figures of requests due from `since` up to `until`, in a run that stopped at `ended`."""
    run = Run()
    for request in requests:
        if not since <= request.at < until:
            continue
        if request.first_at < 0:
            run.unserved += 1
            run.ttft_s.append(round(ended - request.at, TTFT_DIGITS))
            continue
        run.ttft_s.append(round(request.first_at - request.at, TTFT_DIGITS))
        run.prompt_tokens += request.prompt_tokens
        run.cached_tokens += request.cached_tokens
    return run
