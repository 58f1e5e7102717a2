"""What the policies of others know: their own account of dispatched work, and frames of nodes."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from benchmarks.fleet.chains import Request, Segment
from benchmarks.fleet.fleet import Telling


class Ledger:
    """Base of these policies: in-flight work by node, and (as late as frames come) its cache.

    They get the exact cache where they would guess it, which is their best case.
    """

    follows_caches = False

    def __init__(self, nodes: int, random: Random) -> None:
        self.active = [0] * nodes
        self.cached: list[dict[Segment, int]] = [{} for _ in range(nodes)]
        self.random = random

    def pick(self, request: Request, now: float) -> int | None:
        """Choose and book."""
        number = self.choose(request, now)
        self.active[number] += 1
        return number

    def choose(self, request: Request, now: float) -> int:
        """The node for a request."""
        raise NotImplementedError

    def hear(self, telling: Telling, now: float) -> Sequence[tuple[Request, int]]:
        """Follow what ended and, if asked for, caches; nothing is ever held back."""
        frame = telling.frame
        if self.follows_caches:
            held = self.cached[frame.node]
            for stored, segment, start, stop in frame.changes:
                if stored:
                    held[segment] = stop
                elif start:
                    held[segment] = start
                else:
                    held.pop(segment, None)
        for request in frame.ended:
            self.active[frame.node] -= 1
            self.ended(request, frame.node)
        return ()

    def ended(self, request: Request, node: int) -> None:
        """A request of ours has ended on a node."""

    def least(self, costs: Sequence[float]) -> int:
        """The place of the lowest cost, any of them when several are equal."""
        lowest = min(costs)
        return self.random.choice([place for place, cost in enumerate(costs) if cost == lowest])

    def blocks(self, request: Request) -> list[int]:
        """Leading blocks of a prompt by node."""
        return [request.matched_blocks(held) for held in self.cached]
