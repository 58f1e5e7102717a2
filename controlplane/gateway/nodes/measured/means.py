"""What the nodes of one model are like together: the state that routing costs depend on."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp

import numpy as np

from controlplane.gateway.nodes.measured.account import NodeAccount
from controlplane.gateway.nodes.measured.loads import Floats, ManyLoads
from controlplane.gateway.nodes.measured.speed import PREFILL_TOKENS_PER_S_UNKNOWN, STEP_S_UNKNOWN

OBSERVE_INTERVAL_S = 0.1
BACKLOG_S = 5.0
COPY_WEIGHT_MAX = 10.0
OLDEST_S_MIN = 0.001
# A node's cache events come with its steps, so one that works without stepping has told nothing.
SILENT_S = 1.0
# Of many nodes without a speed of their own, at each look; first those that are farthest off.
ASSUMED_AT_ONCE = 64


@dataclass(slots=True, eq=False, repr=False)
class FleetMeans:
    """Means over the nodes: `prefill_tokens_per_s`, `oldest_s` (age of the oldest cached block) and
    `backlog`, the share of nodes where prompts wait, over the last seconds. `silent` are those that
    have had work for a while and have said nothing.
    """

    backlog: float = 0.0
    oldest_s: float = OLDEST_S_MIN
    prefill_tokens_per_s: float = PREFILL_TOKENS_PER_S_UNKNOWN
    silent: frozenset[NodeAccount] = frozenset()
    _observed_s: float | None = None

    @property
    def copy_weight(self) -> float:
        """What an uncached token costs those who come behind, in its own time: rho / (1 - rho).

        When the fleet is idle prefixes may be copied freely; when it is busy, each token that is
        computed again delays everybody in the same busy period.
        """
        idle = 1.0 - self.backlog
        return min(self.backlog / idle, COPY_WEIGHT_MAX) if idle > 0 else COPY_WEIGHT_MAX

    def is_due(self, now_s: float) -> bool:
        """Whether the last look was longer than a moment ago."""
        return self._observed_s is None or now_s - self._observed_s >= OBSERVE_INTERVAL_S

    def observe(self, nodes: Sequence[NodeAccount] | ManyLoads, now_s: float) -> None:
        """Take a look, unless the last was a moment ago; nodes that have not shown their speed are
        given the mean of the others.
        """
        if not self.is_due(now_s):
            return
        share = 1.0
        if self._observed_s is not None:
            share -= exp((self._observed_s - now_s) / BACKLOG_S)
        self._observed_s = now_s
        if isinstance(nodes, ManyLoads):
            waiting = self._look_at_many(nodes, now_s)
        else:
            waiting = self._look(nodes, now_s)
        self.backlog += share * (waiting / len(nodes) - self.backlog)

    def _look(self, nodes: Sequence[NodeAccount], now_s: float) -> int:
        """At each node; returns on how many prompts wait."""
        ages = [now_s - node.told.oldest_at_s for node in nodes if node.told.caches]
        self.oldest_s = max(_mean(ages, OLDEST_S_MIN), OLDEST_S_MIN)
        self.silent = _silent(nodes, now_s)
        speeds = [node.speed for node in nodes]
        rates = [each.prefill_tokens_per_s for each in speeds if each.learned_prefill]
        steps = [each.step_s for each in speeds if each.learned_step]
        self.prefill_tokens_per_s = _mean(rates, PREFILL_TOKENS_PER_S_UNKNOWN)
        if len(rates) < len(nodes) or len(steps) < len(nodes):
            step_s = _mean(steps, STEP_S_UNKNOWN)
            for node in nodes:
                node.assume(self.prefill_tokens_per_s, step_s)
        return sum([node.queued_tokens > 0 for node in nodes])

    def _look_at_many(self, loads: ManyLoads, now_s: float) -> int:
        """The same at all at once."""
        seen = loads.facts()
        oldest_at_s = _mean_where(seen.caches, seen.oldest_at_s, now_s - OLDEST_S_MIN)
        self.oldest_s = max(now_s - oldest_at_s, OLDEST_S_MIN)
        idle = seen.active == 0
        silent = now_s - np.maximum(seen.heard_s, seen.idle_s) > SILENT_S
        found = np.flatnonzero(silent & ~idle).tolist()
        self.silent = frozenset([loads.accounts[place] for place in found])
        loads.idle(idle, now_s)
        rates, steps = seen.learned_prefill, seen.learned_step
        rate = _mean_where(rates, seen.prefill_tokens_per_s, PREFILL_TOKENS_PER_S_UNKNOWN)
        self.prefill_tokens_per_s = rate
        if not (rates.all() and steps.all()):
            step_s = _mean_where(steps, seen.step_s, STEP_S_UNKNOWN)
            off = (1.0 - rates) * abs(seen.prefill_tokens_per_s / rate - 1.0)
            off += (1.0 - steps) * abs(seen.step_s / step_s - 1.0)
            for place in _largest(off, ASSUMED_AT_ONCE):
                loads.accounts[place].assume(rate, step_s)
        return int(np.count_nonzero(seen.queued_tokens > 0))


def _largest(values: Floats, most: int) -> list[int]:
    """Places of so many of the largest values above 0."""
    places = np.flatnonzero(values > 0)
    if len(places) > most:
        places = places[np.argpartition(values[places], -most)[-most:]]
    found: list[int] = places.tolist()
    return found


def _mean(values: list[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def _mean_where(flags: Floats, values: Floats, otherwise: float) -> float:
    """Of the values whose flag is 1, not 0."""
    count = float(flags.sum())
    return float(flags @ values) / count if count else otherwise


def _silent(nodes: Sequence[NodeAccount], now_s: float) -> frozenset[NodeAccount]:
    found = []
    for node in nodes:
        if not node.active:
            node.idle_s = now_s
        elif now_s - node.heard_s > SILENT_S and now_s - node.idle_s > SILENT_S:
            found.append(node)
    return frozenset(found)
