"""What a gateway has counted since it started, for Prometheus: sums that only grow.

Latencies and usage come from minutes of series, which are added when they are forgotten and, at a
scrape, as far as they have come; so a request pays here for a few small counts alone. Labels are
bounded: names beyond the bounds are counted under `other`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from operator import attrgetter

from controlplane.bridge.record.measured import SHED_CODES
from controlplane.bridge.record.series import ANY, OTHER, Minute
from controlplane.bridge.record.standard import Standard
from controlplane.gateway.ports import FinishedRequest
from controlplane.kernel.histogram import BUCKETS_PER_OCTAVE, Histogram
from controlplane.kernel.measures import (
    BREAKER_OPENED,
    CLIENT_RTT,
    DRAFTS,
    GATEWAY_WAIT,
    PHASES,
    PREEMPTED,
    STAGE_NAMES,
)
from controlplane.kernel.statuses import CLIENT_LEFT, FAILED_FROM

MODELS_MAX = 12
ROUTES_MAX = 10
POOLS_MAX = 24
WORDS_MAX = 40
# Ours: stages outside inference take microseconds, inference seconds.
STAGE_BOUNDS = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0,
    10.0, 30.0,
)  # fmt: skip
OVERHEAD, INTER_TOKEN, UNATTRIBUTED = "overhead", "inter_token", "unattributed"
MEASURES = frozenset(
    {*STAGE_NAMES, *PHASES.values(), GATEWAY_WAIT, OVERHEAD, INTER_TOKEN, UNATTRIBUTED, CLIENT_RTT}
)
# What is noted each second, and counted here: the sums of its histograms.
MODEL_TALLIES = frozenset({*DRAFTS, PREEMPTED})
POOL_TALLIES = frozenset({BREAKER_OPENED})
US_PER_S = 1_000_000
_INDEX_MAX = 48 * BUCKETS_PER_OCTAVE
# How our buckets, in microseconds, fall into those: a value less than 1.1 % away from a bound may
# be counted on its other side. Sums and counts are exact.
_PLACES = [
    bisect_left(STAGE_BOUNDS, 2.0 ** ((index - 0.5) / BUCKETS_PER_OCTAVE) / US_PER_S)
    for index in range(_INDEX_MAX)
]


class Latency:
    """One classic histogram in the making; `total_us` is the sum of its values."""

    __slots__ = ("counts", "total_us")

    def __init__(self) -> None:
        self.counts = [0] * (len(STAGE_BOUNDS) + 1)
        self.total_us = 0

    def add(self, histogram: Histogram) -> None:
        counts = self.counts
        counts[0] += histogram.zeros
        for index, count in histogram.buckets.items():
            counts[_PLACES[min(index, _INDEX_MAX - 1)]] += count
        self.total_us += histogram.total


class BoundedNames:
    """The first so many names; whatever comes later is `other`, and counted."""

    def __init__(self, most: int) -> None:
        self.folded = 0
        self._most = most
        self._known: set[str] = set()

    def see(self, name: str, requests: int) -> str:
        """The label of a name of some requests; one that has to share `other` is counted."""
        label = self.claim(name)
        if name and label is OTHER:
            self.folded += requests
        return label

    def claim(self, name: str) -> str:
        """The label of a name, which is its own as long as there is room."""
        if name and name not in self._known:
            if len(self._known) >= self._most:
                return OTHER
            self._known.add(name)
        return name or OTHER

    def of(self, name: str) -> str:
        return name if name in self._known else OTHER


class Sums:
    """Usage by (model, route), latencies by (measure, model), tallies by (measure, model or pool).

    Latencies count each request once, under its model.
    """

    def __init__(self) -> None:
        self.tallies: Counter[tuple[str, str]] = Counter()
        self.usage: dict[tuple[str, str], list[int]] = {}
        self.latencies: dict[tuple[str, str], Latency] = {}

    def latency(self, measure: str, model: str) -> Latency:
        found = self.latencies.get((measure, model))
        if found is None:
            found = self.latencies[measure, model] = Latency()
        return found

    def add(self, other: Sums) -> None:
        self.tallies.update(other.tallies)
        for key, counts in other.usage.items():
            self.add_usage(key, counts)
        for key, theirs in other.latencies.items():
            mine = self.latency(*key)
            mine.counts = [a + b for a, b in zip(mine.counts, theirs.counts, strict=True)]
            mine.total_us += theirs.total_us

    def add_usage(self, key: tuple[str, str], counts: list[int]) -> None:
        mine = self.usage.get(key)
        self.usage[key] = (
            [a + b for a, b in zip(mine, counts, strict=True)] if mine else list(counts)
        )


_labels = attrgetter("model", "route", "status", "error_code", "finish", "operation")


class RunningTotals:
    def __init__(self) -> None:
        self.models = BoundedNames(MODELS_MAX)
        self.routes = BoundedNames(ROUTES_MAX)
        self.pools = BoundedNames(POOLS_MAX)
        self.words = BoundedNames(WORDS_MAX)
        self.standard = Standard()
        self.requests: Counter[tuple[str, str, int]] = Counter()
        self.finishes: Counter[tuple[str, str]] = Counter()
        self.refusals: Counter[tuple[str, str]] = Counter()
        self.cancels: Counter[str] = Counter()
        self.retries: Counter[str] = Counter()
        self.sheds: Counter[str] = Counter()
        self._past = Sums()

    @property
    def folded(self) -> int:
        """How often something was counted under `other`, since there were too many names."""
        names = (self.models, self.routes, self.words)
        return sum(each.folded for each in names) + self.standard.folded

    def count(self, records: Iterable[FinishedRequest]) -> None:
        """Count requests, those together that have the same labels."""
        kinds: dict[tuple[object, ...], list[FinishedRequest]] = {}
        for record in records:
            kinds.setdefault(_labels(record), []).append(record)
        for alike in kinds.values():
            self._count(alike)

    def _count(self, alike: list[FinishedRequest]) -> None:
        record, requests = alike[0], len(alike)
        model = self.models.see(record.model, requests)
        route = self.routes.see(record.route, requests)
        self.requests[model, route, record.status // 100] += requests
        if retries := sum([each.retries for each in alike]):
            self.retries[model] += retries
        if record.status == CLIENT_LEFT:
            self.cancels[model] += requests
        elif record.status >= FAILED_FROM:
            self.refusals[model, self.words.see(record.error_code, requests)] += requests
            if record.error_code in SHED_CODES:
                self.sheds[model] += requests
        if record.finish:
            self.finishes[model, self.words.see(record.finish, requests)] += requests
        self.standard.count(alike, model)

    def retire(self, minute: Minute) -> None:
        """A minute is over and will be forgotten."""
        self._read(minute, self._past)

    def sums(self, minutes: Iterable[Minute]) -> Sums:
        """All until now, with the minutes that are still kept."""
        now = Sums()
        now.add(self._past)
        for minute in minutes:
            self._read(minute, now)
        return now

    def _read(self, minute: Minute, into: Sums) -> None:
        for key, sheet in minute.sheets.items():
            # Of these each request is in exactly one.
            if key.status_class == ANY:
                continue
            model = self.models.of(key.model)
            for measure, histogram in sheet.histograms().items():
                if measure in MEASURES:
                    into.latency(measure, model).add(histogram)
        for key, samples in minute.samples.items():
            if not key.model:
                continue
            # The same is noted of a model, and of its part in each pool.
            wanted = POOL_TALLIES if key.pool else MODEL_TALLIES
            label = self.pools.claim(key.pool) if key.pool else self.models.of(key.model)
            for measure in samples.keys() & wanted:
                into.tallies[measure, label] += samples[measure].total
        for owner, counts in minute.usage.items():
            into.add_usage((self.models.of(owner[3]), self.routes.of(owner[4])), counts)
