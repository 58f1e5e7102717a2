"""Policies that know no cache: random, round robin, least load and hashes of the session."""

from __future__ import annotations

from bisect import bisect_left
from random import Random

from benchmarks.fleet.chains import Request
from benchmarks.fleet.policies.ledger import Ledger

RING_POINTS = 128
BOUND = 1.25


class RandomNode(Ledger):
    """Any node."""

    def choose(self, request: Request, now: float) -> int:
        return self.random.randrange(len(self.active))


class RoundRobin(Ledger):
    """One node after the other."""

    def __init__(self, nodes: int, random: Random) -> None:
        super().__init__(nodes, random)
        self._turn = -1

    def choose(self, request: Request, now: float) -> int:
        self._turn = (self._turn + 1) % len(self.active)
        return self._turn


class LeastLoad(Ledger):
    """The node with the fewest requests in flight."""

    def choose(self, request: Request, now: float) -> int:
        return self.least(self.active)


class SessionHash(Ledger):
    """A consistent hash of the session alone."""

    def __init__(self, nodes: int, random: Random) -> None:
        super().__init__(nodes, random)
        # The ring is one of many possible; the session's place on it must not change.
        points = [(random.random(), node) for node in range(nodes) for _ in range(RING_POINTS)]
        self._points = sorted(points)
        self._places = [place for place, _ in self._points]

    def choose(self, request: Request, now: float) -> int:
        return self._points[self.start(request)][1]

    def start(self, request: Request) -> int:
        """Where on the ring the session is."""
        place = Random(request.session).random()
        return bisect_left(self._places, place) % len(self._points)


class BoundedHash(SessionHash):
    """The same, passing over nodes with more than 1.25 times the mean load."""

    def choose(self, request: Request, now: float) -> int:
        bound = BOUND * (sum(self.active) + 1) / len(self.active)
        start = self.start(request)
        for step in range(len(self._points)):
            node = self._points[(start + step) % len(self._points)][1]
            if self.active[node] + 1 <= bound + 1:
                return node
        return self.least(self.active)
