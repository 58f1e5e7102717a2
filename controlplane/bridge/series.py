"""Histograms and usage of the present minutes, in memory, with a bound on the number of series.

Every flush writes a minute's whole state so far under the gateway's own writer id, so that repeats
change nothing. Not a store: what is flushed and over is forgotten.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable
from math import ceil, log2
from typing import NamedTuple

from controlplane.gateway.nodes.drafts import Drafts
from controlplane.gateway.ports import RequestRecord
from controlplane.kernel.gauges import ACCEPTED, DRAFTED, GAUGES, SAMPLES
from controlplane.kernel.histogram import BUCKETS_PER_OCTAVE, Histogram
from controlplane.kernel.spans import INDEX, STAGES
from controlplane.kernel.statuses import CLIENT_LEFT, FAILED_FROM

STAGE_NAMES = tuple(name for name, _, _ in STAGES)
MEASURES = (
    *STAGE_NAMES,
    "total",
    "overhead",
    "queue",
    "prefill",
    "decode",
    "network",
    "ttft",
    "inter_token",
    "tokens_per_s",
)
PROJECT_MEASURES = ("total", "ttft", "inter_token")
PROMPT_BUCKETS = (256, 1_024, 4_096, 16_384, 65_536)
OTHER = "other"
ALL_MODELS = ""
# No request has this prompt bucket or class of status.
SAMPLED = -1
EVERYONE = "0" * 32
MINUTE_S = 60
GROUPS_MAX = 500
PROJECTS_MAX = 2_000
COUNTERS_MAX = 20_000
MINUTES_MAX = 15
USAGE_COUNTS = 9

_STAGE_SPANS = tuple(INDEX[name] for name in STAGE_NAMES)
_NODE_SPANS = tuple(INDEX[f"s5_infer.{name}"] for name in ("queue", "prefill", "decode", "network"))
_INFER = INDEX["s5_infer"]
_MILLI_TOKENS = 1_000 * 1_000_000
# Nearly every gap between tokens is under 65 ms, and a table is five times faster than a logarithm.
_BUCKET_OF = array(
    "h", [0, *(ceil(log2(value) * BUCKETS_PER_OCTAVE) for value in range(1, 65_536))]
)
_TABLE_SIZE = len(_BUCKET_OF)

SeriesKey = tuple[str, str, str, str, int, int]
UsageKey = tuple[str, str, str, str, str]


class Depth(NamedTuple):
    """One sample: requests for a model that wait in the gateway, and on nodes for a first token.

    `priorities` are those in the gateway from low to high, `oldest_ms` the wait of the first there.
    """

    model: str
    in_gateway: int
    on_nodes: int
    priorities: tuple[int, int, int] = (0, 0, 0)
    oldest_ms: int = 0

    @property
    def values(self) -> tuple[int, ...]:
        """In the order of the gauges' names."""
        total = self.in_gateway + self.on_nodes
        return self.in_gateway, self.on_nodes, total, *self.priorities, self.oldest_ms


class Minute:
    """All series of one minute; `dirty` ones changed since they were last written."""

    def __init__(self, start_s: int) -> None:
        self.start_s = start_s
        self.groups: dict[SeriesKey, list[Histogram]] = {}
        self.usage: dict[UsageKey, list[int]] = {}
        self.dirty_groups: set[SeriesKey] = set()
        self.dirty_usage: set[UsageKey] = set()
        self.projects = 0
        self.overflowed = 0

    @property
    def clean(self) -> bool:
        """Whether everything is written."""
        return not self.dirty_groups and not self.dirty_usage

    def add(self, record: RequestRecord) -> None:
        """Count one finished request."""
        gaps = _gaps(record.inter_token_us)
        bucket = _prompt_bucket(record.prompt_tokens)
        self._add_global(record, bucket, gaps)
        self._add_project(record, gaps)
        self._add_usage(record)

    def sample(self, depths: Iterable[Depth]) -> None:
        """Note how many requests wait at this moment."""
        for depth in depths:
            self._add_sampled(depth.model, dict(zip(GAUGES, depth.values, strict=True)))

    def drafts(self, taken: Iterable[Drafts]) -> None:
        """Count drafts, for their model and for all models together."""
        for model, drafted, accepted in taken:
            values = {DRAFTED: drafted, ACCEPTED: accepted}
            self._add_sampled(ALL_MODELS, values)
            self._add_sampled(model, values)

    def _add_sampled(self, model: str, values: dict[str, int]) -> None:
        key = (EVERYONE, EVERYONE, model, "", SAMPLED, SAMPLED)
        group = self.groups.get(key)
        if group is None:
            if len(self.groups) - self.projects >= GROUPS_MAX:
                self.overflowed += 1
                return
            group = self.groups[key] = [Histogram() for _ in SAMPLES]
        self.dirty_groups.add(key)
        for name, value in values.items():
            group[SAMPLES.index(name)].record(value)

    def _add_global(self, record: RequestRecord, bucket: int, gaps: Histogram | None) -> None:
        key = (EVERYONE, EVERYONE, record.model, record.route, bucket, record.status // 100)
        group = self.groups.get(key)
        if group is None:
            if len(self.groups) - self.projects >= GROUPS_MAX:
                self.overflowed += 1
                key = (EVERYONE, EVERYONE, OTHER, OTHER, bucket, record.status // 100)
            group = self.groups.setdefault(key, [Histogram() for _ in MEASURES])
        self.dirty_groups.add(key)
        spans = array("i")
        spans.frombytes(record.spans)
        half = len(spans) // 2
        place = 0
        for index in _STAGE_SPANS:
            if spans[index] >= 0:
                group[place].record(spans[half + index])
            place += 1
        group[place].record(record.total_us)
        if spans[_INFER] >= 0:
            group[place + 1].record(record.total_us - spans[half + _INFER])
        place += 2
        for index in _NODE_SPANS:
            if spans[index] >= 0:
                group[place].record(spans[half + index])
            place += 1
        if record.ttft_us >= 0:
            group[place].record(record.ttft_us)
        if gaps is not None:
            group[place + 1].merge(gaps)
            if gaps.total > 0 and record.output_tokens > 1:
                group[place + 2].record((record.output_tokens - 1) * _MILLI_TOKENS // gaps.total)

    def _add_project(self, record: RequestRecord, gaps: Histogram | None) -> None:
        key = (record.organization, record.project, record.model, "", -1, -1)
        group = self.groups.get(key)
        if group is None:
            if self.projects >= PROJECTS_MAX:
                self.overflowed += 1
                return
            self.projects += 1
            group = self.groups[key] = [Histogram() for _ in PROJECT_MEASURES]
        self.dirty_groups.add(key)
        group[0].record(record.total_us)
        if record.ttft_us >= 0:
            group[1].record(record.ttft_us)
        if gaps is not None:
            group[2].merge(gaps)

    def _add_usage(self, record: RequestRecord) -> None:
        key = (record.organization, record.project, record.key, record.model, record.route)
        counts = self.usage.get(key)
        if counts is None:
            if len(self.usage) >= COUNTERS_MAX:
                self.overflowed += 1
                key = (record.organization, EVERYONE, EVERYONE, OTHER, OTHER)
            counts = self.usage.setdefault(key, [0] * USAGE_COUNTS)
        self.dirty_usage.add(key)
        gone = record.status == CLIENT_LEFT
        counts[0] += 1
        counts[1] += record.status >= FAILED_FROM and not gone
        counts[2] += gone
        counts[3] += record.prompt_tokens - record.cached_tokens
        counts[4] += record.cached_tokens
        counts[5] += record.output_tokens
        counts[6] += record.cost_nano
        counts[7] += record.available_tokens
        counts[8] += record.captured_tokens


class Minutes:
    """The minutes that are not yet both over and written; `retired` gets each that is forgotten."""

    def __init__(self, retired: Callable[[Minute], None]) -> None:
        self._retired = retired
        self._minutes: dict[int, Minute] = {}
        self.overflowed = 0
        self.forgotten = 0

    def add(self, record: RequestRecord, now_s: float) -> None:
        """Count a request in the minute in which it finished."""
        self._minute(now_s).add(record)

    def sample(self, depths: Iterable[Depth], now_s: float) -> None:
        """Note how many requests wait now."""
        self._minute(now_s).sample(depths)

    def drafts(self, taken: Iterable[Drafts], now_s: float) -> None:
        """Count tokens that were drafted just now."""
        self._minute(now_s).drafts(taken)

    def kept(self) -> list[Minute]:
        """Minutes that are not forgotten."""
        return list(self._minutes.values())

    def dirty(self) -> list[Minute]:
        """Minutes with something to write, oldest first."""
        return [minute for minute in self._minutes.values() if not minute.clean]

    def _minute(self, now_s: float) -> Minute:
        start_s = int(now_s) // MINUTE_S * MINUTE_S
        minute = self._minutes.get(start_s)
        if minute is None:
            self._forget()
            minute = self._minutes[start_s] = Minute(start_s)
        return minute

    def _forget(self) -> None:
        """Called as a minute begins: written ones go, and the oldest if there are too many."""
        kept = [minute for minute in self._minutes.values() if not minute.clean]
        self.overflowed += sum(minute.overflowed for minute in self._minutes.values())
        for minute in self._minutes.values():
            minute.overflowed = 0
        surplus = max(0, len(kept) - MINUTES_MAX + 1)
        self.forgotten += surplus
        past, self._minutes = self._minutes, {each.start_s: each for each in kept[surplus:]}
        for minute in past.values():
            if minute.start_s not in self._minutes:
                self._retired(minute)


def measures_of(key: SeriesKey) -> tuple[str, ...]:
    """The names of a group's histograms, in their order."""
    if key[1] != EVERYONE:
        return PROJECT_MEASURES
    return SAMPLES if key[5] == SAMPLED else MEASURES


def _gaps(inter_token_us: list[int]) -> Histogram | None:
    """One request's gaps between tokens as a histogram of its own, to be merged twice."""
    if not inter_token_us:
        return None
    made = Histogram()
    size = _TABLE_SIZE
    if min(inter_token_us) <= 0 or max(inter_token_us) >= size:
        for value in inter_token_us:
            made.record(value)
        return made
    table = _BUCKET_OF
    made.buckets = dict(Counter([table[value] for value in inter_token_us]))
    made.total = sum(inter_token_us)
    made.maximum = max(inter_token_us)
    return made


def _prompt_bucket(tokens: int) -> int:
    for place, bound in enumerate(PROMPT_BUCKETS):
        if tokens <= bound:
            return place
    return len(PROMPT_BUCKETS)
