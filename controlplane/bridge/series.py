"""Series and usage of the present minutes, in memory, with a bound on the number of series.

Every flush writes a minute's whole state so far under the gateway's own writer id, so that repeats
change nothing. Not a store: what is flushed and over is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from controlplane.bridge.measured import Batch, Gaps, OwnBatch, Sheet, Times, gaps_of, times_of
from controlplane.gateway.nodes.drafts import Drafts
from controlplane.gateway.ports import RequestRecord
from controlplane.kernel.gauges import ACCEPTED, DRAFTED, GAUGES
from controlplane.kernel.histogram import Histogram
from controlplane.kernel.measures import (
    HEADLINES,
    MEASURES,
    OWN_MEASURES,
    PREEMPTED,
    prompt_bucket,
)
from controlplane.kernel.statuses import CLIENT_LEFT, FAILED_FROM

OTHER = "other"
ALL_MODELS = ""
# Of any length, of any status.
ANY = -1
EVERYONE = "0" * 32
MINUTE_S = 60
SERIES_MAX = 10_000
SAMPLED_MAX = 500
OWNERS_MAX = 2_000
EXEMPLARS_MAX = 20_000
BATCHES_MAX = 256
# Folding this many takes under a millisecond.
FOLDED_AT_ONCE = 16
COUNTERS_MAX = 20_000
MINUTES_MAX = 15
USAGE_COUNTS = 9

BatchKey = tuple[str, str, str, str, int, int]
Owner = tuple[str, str, str]
UsageKey = tuple[str, str, str, str, str]


class SeriesKey(NamedTuple):
    """What the series of a sheet are of; at most one dimension beside the model is set."""

    organization: str = EVERYONE
    project: str = EVERYONE
    model: str = ALL_MODELS
    route: str = ""
    pool: str = ""
    region: str = ""
    prompt_bucket: int = ANY
    status_class: int = ANY


class Exemplar(NamedTuple):
    """A request that took `value_us`, which has `octave` bits."""

    owner: Owner
    measure: str
    octave: int
    value_us: int
    request: bytes


class Sample(NamedTuple):
    """One value of a gauge or an event, of a model in a pool; blank for all of them."""

    model: str
    pool: str
    measure: str
    value: int


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
        self.sheets: dict[SeriesKey, Sheet] = {}
        self.samples: dict[SeriesKey, dict[str, Histogram]] = {}
        self.usage: dict[UsageKey, list[int]] = {}
        self.dirty: set[SeriesKey] = set()
        self.dirty_usage: set[UsageKey] = set()
        self.exemplars: list[Exemplar] = []
        self.overflowed = 0
        self._batches: dict[BatchKey, Batch] = {}
        self._own: dict[Owner, OwnBatch] = {}
        self._shown: dict[Owner, dict[str, int]] = {}
        self._series = 0

    @property
    def clean(self) -> bool:
        """Whether everything is written."""
        return not (self.dirty or self.dirty_usage or self.exemplars or self.unfolded)

    @property
    def unfolded(self) -> bool:
        """Whether requests wait to be added to their series."""
        return bool(self._batches or self._own)

    def add(self, record: RequestRecord) -> None:
        """Count one finished request."""
        times, gaps = times_of(record.spans), gaps_of(record.inter_token_us)
        self._add_everyone(record, times, gaps)
        self._add_own(record, times, gaps)
        self._add_usage(record)

    def fold(self, most: int = FOLDED_AT_ONCE) -> bool:
        """Add up to so many batches to their series; whether any are left."""
        for _ in range(most):
            if self._batches:
                self._fold_everyone(*self._batches.popitem())
            elif self._own:
                self._fold_own(*self._own.popitem())
        return self.unfolded

    def fold_all(self) -> None:
        """Add all."""
        while self.fold():
            pass

    def rows(self, key: SeriesKey) -> Iterator[tuple[str, Histogram]]:
        """Measures and histograms of one key; those without values are left out."""
        if key in self.sheets:
            yield from self.sheets[key].histograms().items()
        yield from self.samples.get(key, {}).items()

    def sample(self, depths: Iterable[Depth]) -> None:
        """Note how many requests wait at this moment."""
        for depth in depths:
            for name, value in zip(GAUGES, depth.values, strict=True):
                self.note(Sample(depth.model, "", name, value))

    def drafts(self, taken: Iterable[Drafts]) -> None:
        """Count what nodes told, for their model and for all models together."""
        for model, drafted, accepted, preempted in taken:
            values = {DRAFTED: drafted, ACCEPTED: accepted}
            if preempted:
                values[PREEMPTED] = preempted
            for name, value in values.items():
                self.note(Sample(ALL_MODELS, "", name, value))
                self.note(Sample(model, "", name, value))

    def note(self, sample: Sample) -> None:
        """Record one value."""
        key = SeriesKey(model=sample.model, pool=sample.pool)
        group = self.samples.get(key)
        if group is None:
            if len(self.samples) >= SAMPLED_MAX:
                self.overflowed += 1
                return
            group = self.samples[key] = {}
        self.dirty.add(key)
        histogram = group.get(sample.measure)
        if histogram is None:
            histogram = group[sample.measure] = Histogram()
        histogram.record(sample.value)

    def _add_everyone(self, record: RequestRecord, times: Times, gaps: Gaps | None) -> None:
        key = (
            record.model,
            record.route,
            record.pool,
            record.region,
            prompt_bucket(record.prompt_tokens),
            record.status // 100,
        )
        batch = self._batches.get(key)
        if batch is None:
            if len(self._batches) >= BATCHES_MAX:
                self._fold_everyone(*self._batches.popitem())
            batch = self._batches[key] = Batch()
        batch.add(record, times, gaps)

    def _add_own(self, record: RequestRecord, times: Times, gaps: Gaps | None) -> None:
        owner = (record.organization, record.project, record.model)
        shown = self._shown.get(owner)
        if shown is None:
            if len(self._shown) >= OWNERS_MAX:
                self.overflowed += 1
                return
            shown = self._shown[owner] = {}
        batch = self._own.get(owner)
        if batch is None:
            batch = self._own[owner] = OwnBatch()
        batch.add(record, gaps)
        self._show(owner, shown, record, times)

    def _show(
        self, owner: Owner, shown: dict[str, int], record: RequestRecord, times: Times
    ) -> None:
        """The first of a minute in its octave stands for it; the next minute's replaces it.

        `shown` has a bit for each octave of a measure.
        """
        for measure, us in (("total", record.total_us), ("ttft", record.ttft_us), *times.stages):
            octave = us.bit_length()
            seen = shown.get(measure, 0)
            if seen >> octave & 1 or us < 0 or len(self.exemplars) >= EXEMPLARS_MAX:
                continue
            shown[measure] = seen | 1 << octave
            self.exemplars.append(Exemplar(owner, measure, octave, us, record.request))

    def _fold_everyone(self, key: BatchKey, batch: Batch) -> None:
        model, route, pool, region, bucket, status = key
        wide, narrow = len(MEASURES), len(HEADLINES)
        self._fold(SeriesKey(), wide, batch)
        if model:
            self._fold(SeriesKey(model=model), wide, batch)
        self._fold(SeriesKey(model=model, prompt_bucket=bucket), narrow, batch)
        self._fold(SeriesKey(model=model, status_class=status), narrow, batch)
        if route:
            self._fold(SeriesKey(model=model, route=route), narrow, batch)
        if pool:
            self._fold(SeriesKey(model=model, pool=pool), narrow, batch)
        if region:
            self._fold(SeriesKey(model=model, region=region), narrow, batch)

    def _fold(self, key: SeriesKey, width: int, batch: Batch) -> None:
        sheet = self._sheet(key, width)
        if sheet is None:
            self.overflowed += batch.requests
            return
        sheet.fold(batch.heads)
        if width == len(MEASURES):
            sheet.fold(batch.rests)
        sheet.fold_sums(batch.totals, batch.maxima)

    def _fold_own(self, owner: Owner, batch: OwnBatch) -> None:
        organization, project, model = owner
        for each in (project, EVERYONE):
            for name in {model, ALL_MODELS}:
                sheet = self._sheet(SeriesKey(organization, each, name), len(OWN_MEASURES))
                if sheet is None:
                    self.overflowed += batch.requests
                    continue
                sheet.fold(batch.counts)
                sheet.fold_sums(batch.totals, batch.maxima)

    def _sheet(self, key: SeriesKey, width: int) -> Sheet | None:
        """Made where it is missing and there is room: what has none is in wider series alone."""
        sheet = self.sheets.get(key)
        if sheet is None:
            if self._series + width > SERIES_MAX:
                return None
            self._series += width
            sheet = self.sheets[key] = Sheet(width)
        self.dirty.add(key)
        return sheet

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

    def note(self, sample: Sample, now_s: float) -> None:
        """Record one value of now."""
        self._minute(now_s).note(sample)

    def fold(self) -> bool:
        """Add some requests to their series; whether any are left."""
        left = [minute.fold() for minute in self._minutes.values()]
        return any(left)

    def fold_all(self) -> None:
        """Add all of them, which takes some milliseconds."""
        for minute in self._minutes.values():
            minute.fold_all()

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
                minute.fold_all()
                self._retired(minute)
