"""How many nodes a pool needs to keep its promises: what one node holds, what will come, and how
such plans would have done on traffic that came. Pure arithmetic, with its reasons in words.

A node is a queue for prefill before a batch that decodes: waits as of M/M/1, requests in progress
by Little's law, each further sequence of a step slowing all. Nodes share nothing in this model, so
it errs towards more of them.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from math import ceil, inf, log, sqrt
from statistics import NormalDist

import msgspec

from controlplane.kernel.insights.capacity import CACHE, SLOTS, US_PER_S, Engine, Load
from controlplane.kernel.objectives.counting import INTER_TOKEN, TTFT

PREFILL, DECODE = "prefill", "decode"
PROMISE_WORDS = {TTFT: "TTFT", INTER_TOKEN: "time between tokens"}
BOUND_WORDS = {
    PREFILL: "has time for prefill",
    DECODE: "has time for decode",
    SLOTS: "accepts concurrent requests",
    CACHE: "has KV cache",
}
# How often what a node has at once may exceed its room: the rest waits a moment.
CROWD_SHARE = 0.95
STEP_S = 900
HOUR_S, DAY_S, WEEK_S = 3_600, 86_400, 604_800
# A holiday or a new customer moves a week's pattern; more than this is another pattern.
TREND_LEAST, TREND_MOST = 0.5, 2.0
RATE_MOST = 1e6
_HALVINGS = 60
LAST_WEEK, YESTERDAY, NOW = "last week", "yesterday", "now"
BACK_S = {LAST_WEEK: WEEK_S, YESTERDAY: DAY_S}


class Promise(msgspec.Struct, frozen=True, kw_only=True):
    """An objective of a pool: `share` of the requests within `threshold_us`.

    `apart_us` is what of the time to the first token no load of the node changes, at that share:
    its prefill, and the way to the node and back.
    """

    name: str
    indicator: str
    threshold_us: int
    share: float
    apart_us: float = 0.0

    @property
    def words(self) -> str:
        """`TTFT p95 500 ms`."""
        what, share = PROMISE_WORDS[self.indicator], 100 * self.share
        return f"{what} p{share:g} {self.threshold_us / 1_000:g} ms"


class NodeBound(msgspec.Struct, frozen=True):
    """Up to how many requests a second one node keeps a promise, or has room."""

    what: str
    per_s: float
    words: str
    promised: bool


class Outlook(msgspec.Struct, frozen=True, kw_only=True):
    """The highest rate that is foreseen: requests a second, in the step from `at_s` on, from which
    past, times which trend."""

    per_s: float
    at_s: int
    basis: str
    trend: float = 1.0

    @property
    def words(self) -> str:
        if self.basis == NOW:
            return f"{_figure(self.per_s)} requests/s now"
        clock = f"{datetime.fromtimestamp(self.at_s, UTC):%H:%M}"
        trend = f" × {self.trend:.2f}" if abs(self.trend - 1) >= 0.005 else ""
        return f"peak {_figure(self.per_s)} requests/s at {clock} as {self.basis}{trend}"


class NodePlan(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes that a pool should have: `wanted` before its least and most. `bounds` are of one node,
    the one that breaks first in front; `per_node_s` is 0 where nothing is known of it."""

    nodes: int
    wanted: int
    per_node_s: float
    outlook: Outlook
    bounds: tuple[NodeBound, ...]
    reasons: tuple[str, ...]


def node_bounds(load: Load, engine: Engine, promises: Sequence[Promise]) -> tuple[NodeBound, ...]:
    """What one node holds of this load, the scarcest first; a promise that an idle node breaks is
    held up to 0 requests a second."""
    work_s = load.tokens_in * (1 - load.cached_share) * engine.prefill_us / US_PER_S
    tests: list[tuple[str, str, bool, Callable[[float], bool]]] = [
        (PREFILL, BOUND_WORDS[PREFILL], False, lambda rate: rate * work_s < 1),
        (DECODE, BOUND_WORDS[DECODE], False, lambda rate: _at_once(rate, load, engine) < inf),
    ]
    for what, room in ((SLOTS, engine.slots), (CACHE, engine.kv_tokens)):
        size = load.tokens_in + load.tokens_out if what == CACHE else 1.0
        if room:
            tests.append((what, BOUND_WORDS[what], False, _has_room(room / size, load, engine)))
    for one in promises:
        keeps = (
            _keeps_ttft(one, work_s) if one.indicator == TTFT else _keeps_pace(one, load, engine)
        )
        tests.append((one.indicator, f"holds {one.words}", True, keeps))
    found = [NodeBound(what, _most(keeps), words, told) for what, words, told, keeps in tests]
    return tuple(sorted(found, key=lambda bound: bound.per_s))


def forecast(history: Mapping[int, float], now_s: float, ahead_s: float) -> Outlook:
    """The peak from now until so far ahead. `history` has requests a second by the start of each
    step, none where none came; a step that is not over counts as it stands."""
    begins = int(now_s) // STEP_S * STEP_S
    now = max(history.get(begins, 0.0), history.get(begins - STEP_S, 0.0))
    ahead = foreseen(history, now_s, ahead_s)
    seen = max(ahead, key=lambda one: one.per_s, default=None)
    if seen is None or seen.per_s <= now:
        return Outlook(per_s=now, at_s=begins, basis=NOW)
    # Of steps around a peak that see it alike, the one in which it was.
    alike = [one for one in ahead if one.per_s == seen.per_s]
    return max(alike, key=lambda one: history.get(one.at_s - BACK_S[one.basis], 0.0))


def foreseen(history: Mapping[int, float], now_s: float, ahead_s: float) -> list[Outlook]:
    """Each step from that of now on: the same time last week with the trend since, or yesterday;
    none where the history is shorter than that."""
    begins = int(now_s) // STEP_S * STEP_S
    first = min(history, default=begins)
    basis = next((name for name, back_s in BACK_S.items() if begins - first >= back_s), None)
    if basis is None:
        return []
    back_s = BACK_S[basis]
    # A day that is known in part is no day to compare with.
    known = basis == LAST_WEEK and begins - first >= back_s + DAY_S
    trend = _trend(history, begins, back_s) if known else 1.0
    found = []
    for at in range(begins, int(now_s + ahead_s) + 1, STEP_S):
        # A week is seldom the same to the quarter of an hour.
        around = (history.get(at - back_s + shift, 0.0) for shift in (-STEP_S, 0, STEP_S))
        found.append(Outlook(per_s=trend * max(around), at_s=at, basis=basis, trend=trend))
    return found


def make_plan(outlook: Outlook, bounds: Sequence[NodeBound], *, least: int, most: int) -> NodePlan:
    """As many nodes as hold the outlook, within the pool's least and most."""
    reasons = [outlook.words]
    reasons += [
        f"no node {bound.words}, even alone: more nodes do not help"
        for bound in bounds
        if not bound.per_s
    ]
    holding = [bound for bound in bounds if bound.per_s]
    if not holding:
        wanted, per_node = int(outlook.per_s > 0), 0.0
        reasons.append("nothing was measured of a node yet")
    else:
        per_node = holding[0].per_s
        wanted = ceil(outlook.per_s / per_node)
        reasons.append(
            f"a node {holding[0].words} up to {_figure(per_node)} requests/s: {_nodes(wanted)}"
        )
        if not any(bound.promised for bound in bounds):
            reasons.append("no objective of the installation promises a time for this pool")
    nodes = max(least, min(most, wanted))
    if nodes != wanted:
        told = f"at least {least}" if nodes > wanted else f"at most {most}"
        reasons.append(f"the pool has {told}: {_nodes(nodes)}")
    return NodePlan(
        nodes=nodes,
        wanted=wanted,
        per_node_s=per_node,
        outlook=outlook,
        bounds=tuple(bounds),
        reasons=tuple(reasons),
    )


class ReplayedFleet(msgspec.Struct, frozen=True, kw_only=True):
    """What a way to choose nodes would have cost and missed: `late` are requests beyond what the
    nodes that were ready hold, of `requests`."""

    name: str
    node_hours: float
    nodes_most: int
    requests: float
    late: float

    @property
    def late_share(self) -> float:
        return self.late / self.requests if self.requests else 0.0


def replay(
    name: str,
    history: Mapping[int, float],
    steps: Sequence[int],
    wish: Callable[[int, int], int],
    *,
    per_node_s: float,
    cold_start_s: float,
) -> ReplayedFleet:
    """`wish` says, at the start of each step, how many nodes there should be, of those there are.

    A node that is added serves when its cold start is over, and costs from its beginning.
    """
    nodes, node_s, most, late = 0, 0.0, 0, 0.0
    for place, at in enumerate(steps):
        before, nodes = nodes, wish(at, nodes)
        if not place:
            before = nodes
        rate = history.get(at, 0.0)
        starting_s = min(STEP_S, cold_start_s) if nodes > before else 0.0
        for ready, seconds in ((before, starting_s), (nodes, STEP_S - starting_s)):
            late += seconds * max(0.0, rate - ready * per_node_s)
        node_s += nodes * STEP_S
        most = max(most, nodes)
    requests = sum(history.get(at, 0.0) for at in steps) * STEP_S
    return ReplayedFleet(
        name=name, node_hours=node_s / HOUR_S, nodes_most=most, requests=requests, late=late
    )


def _at_once(rate: float, load: Load, engine: Engine) -> float:
    """Requests in progress at this rate; infinite where decoding cannot keep up."""
    alone_us = max(0.0, engine.decode_us - engine.slower_us * engine.batch)
    work_us = load.tokens_in * (1 - load.cached_share) * engine.prefill_us
    slowing = rate * load.tokens_out * engine.slower_us / US_PER_S
    if slowing >= 1:
        return inf
    return rate * (work_us + load.tokens_out * alone_us) / US_PER_S / (1 - slowing)


def _crowd(rate: float, load: Load, engine: Engine, share: float) -> float:
    """What `share` of moments do not exceed: requests come at random."""
    mean = _at_once(rate, load, engine)
    return mean + NormalDist().inv_cdf(share) * sqrt(mean) if mean < inf else inf


def _has_room(room: float, load: Load, engine: Engine) -> Callable[[float], bool]:
    return lambda rate: _crowd(rate, load, engine, CROWD_SHARE) <= room


def _keeps_pace(promise: Promise, load: Load, engine: Engine) -> Callable[[float], bool]:
    def keeps(rate: float) -> bool:
        crowd = _crowd(rate, load, engine, promise.share)
        return crowd < inf and engine.token_us(crowd) <= promise.threshold_us

    return keeps


def _keeps_ttft(promise: Promise, work_s: float) -> Callable[[float], bool]:
    def keeps(rate: float) -> bool:
        wait_us = US_PER_S * _wait_s(rate * work_s, work_s, promise.share)
        return promise.apart_us + wait_us <= promise.threshold_us

    return keeps


def _wait_s(busy: float, work_s: float, share: float) -> float:
    """How long `share` of requests wait at most for a server that is busy for that part of time."""
    if busy >= 1:
        return inf
    return max(0.0, work_s / (1 - busy) * log(busy / (1 - share))) if busy > 0 else 0.0


def _most(keeps: Callable[[float], bool]) -> float:
    """The highest rate that keeps it; 0 where not even the lowest does, `RATE_MOST` where any."""
    if keeps(RATE_MOST):
        return RATE_MOST
    low, high = 0.0, 1 / RATE_MOST
    while high < RATE_MOST and keeps(high):
        low, high = high, 2 * high
    for _ in range(_HALVINGS if low else 0):
        middle = (low + high) / 2
        low, high = (middle, high) if keeps(middle) else (low, middle)
    return low


def _trend(history: Mapping[int, float], now_s: int, back_s: int) -> float:
    """The last day over the same one then, within bounds; 1 where either had nothing."""
    days = [
        sum(history.get(at, 0.0) for at in range(end - DAY_S, end, STEP_S))
        for end in (now_s, now_s - back_s)
    ]
    if not all(days):
        return 1.0
    return min(TREND_MOST, max(TREND_LEAST, days[0] / days[1]))


def _figure(value: float) -> str:
    return f"{value:.3g}" if value < 1_000 else f"{value:,.0f}"


def _nodes(count: int) -> str:
    return f"{count} node{'' if count == 1 else 's'}"
