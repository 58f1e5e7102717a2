"""Series and usage of the present minutes, in memory, with a bound on the number of series.

Every flush writes a minute's whole state so far under the gateway's own writer id, so that repeats
change nothing. Not a store: what is flushed and over is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from operator import add, itemgetter
from typing import NamedTuple, TypeVar

from controlplane.bridge.measured import NARROW, OWN, WIDE, Batch, Measured, Sheet, measure
from controlplane.gateway.nodes.drafts import Drafts
from controlplane.gateway.ports import RequestRecord
from controlplane.kernel.gauges import ACCEPTED, DRAFTED, GAUGES
from controlplane.kernel.histogram import Histogram
from controlplane.kernel.measures import (
    HEADLINES,
    PREEMPTED,
    STAGE_NAMES,
    WHOLE,
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
EXEMPLAR_MEASURES = (*WHOLE[:2], *STAGE_NAMES)
OCTAVES = 64
_EXEMPLARS = itemgetter(*map(HEADLINES.index, EXEMPLAR_MEASURES))
_OCTAVES = tuple(OCTAVES * place for place in range(len(EXEMPLAR_MEASURES)))

NarrowKey = tuple[str, str, str, str, int, int]
Owner = tuple[str, str, str]
Key = TypeVar("Key")
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
        self._models: dict[str, Batch] = {}
        self._narrow: dict[NarrowKey, Batch] = {}
        self._own: dict[Owner, Batch] = {}
        self._shown: dict[Owner, set[int]] = {}
        self._series = 0

    @property
    def clean(self) -> bool:
        """Whether everything is written."""
        return not (self.dirty or self.dirty_usage or self.exemplars or self.unfolded)

    @property
    def unfolded(self) -> bool:
        """Whether requests wait to be added to their series."""
        return bool(self._models or self._own or self._narrow)

    def add(self, record: RequestRecord) -> None:
        """Count one finished request."""
        found = measure(record)
        heads, heads_us, rests, rests_us, _, gaps = found
        _batch(self._models, record.model, WIDE).add(heads + rests, heads_us + rests_us, gaps)
        narrow = (
            record.model,
            record.route,
            record.pool,
            record.region,
            prompt_bucket(record.prompt_tokens),
            record.status // 100,
        )
        _batch(self._narrow, narrow, NARROW).add(heads, heads_us, gaps)
        if len(self._narrow) > BATCHES_MAX:
            self._fold_narrow(*self._narrow.popitem())
        self._add_own(record, found)
        self._add_usage(record)

    def fold(self, *, narrow: bool = True) -> bool:
        """Add some batches to their series; whether any are left, narrow ones only if asked for."""
        for _ in range(FOLDED_AT_ONCE):
            if self._models:
                self._fold_model(*self._models.popitem())
            elif self._own:
                self._fold_own(*self._own.popitem())
            elif narrow and self._narrow:
                self._fold_narrow(*self._narrow.popitem())
        return bool(self._models or self._own or narrow and self._narrow)

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

    def _add_own(self, record: RequestRecord, found: Measured) -> None:
        owner = (record.organization, record.project, record.model)
        shown = self._shown.get(owner)
        if shown is None:
            if len(self._shown) >= OWNERS_MAX:
                self.overflowed += 1
                return
            shown = self._shown[owner] = set()
        _batch(self._own, owner, OWN).add(found.own, found.heads_us[:OWN], found.gaps)
        values = _EXEMPLARS(found.heads_us)
        octaves = list(map(add, _OCTAVES, map(int.bit_length, values)))
        if not shown.issuperset(octaves):
            self._show(owner, record.request, zip(octaves, values, strict=True))

    def _show(self, owner: Owner, request: bytes, found: Iterable[tuple[int, int]]) -> None:
        """The first of a minute in its octave stands for it; the next minute's replaces it."""
        shown = self._shown[owner]
        for place, us in found:
            if place not in shown and len(self.exemplars) < EXEMPLARS_MAX:
                shown.add(place)
                measure, octave = divmod(place, OCTAVES)
                if us:
                    name = EXEMPLAR_MEASURES[measure]
                    self.exemplars.append(Exemplar(owner, name, octave, us, request))

    def _fold_model(self, model: str, batch: Batch) -> None:
        for name in {model, ALL_MODELS}:
            self._fold(SeriesKey(model=name), batch)

    def _fold_narrow(self, key: NarrowKey, batch: Batch) -> None:
        model, route, pool, region, bucket, status = key
        self._fold(SeriesKey(model=model, prompt_bucket=bucket), batch)
        self._fold(SeriesKey(model=model, status_class=status), batch)
        if route:
            self._fold(SeriesKey(model=model, route=route), batch)
        if pool:
            self._fold(SeriesKey(model=model, pool=pool), batch)
        if region:
            self._fold(SeriesKey(model=model, region=region), batch)

    def _fold_own(self, owner: Owner, batch: Batch) -> None:
        organization, project, model = owner
        for each in (project, EVERYONE):
            for name in {model, ALL_MODELS}:
                self._fold(SeriesKey(organization, each, name), batch)

    def _fold(self, key: SeriesKey, batch: Batch) -> None:
        sheet = self._sheet(key, batch.sheet.width)
        if sheet is None:
            self.overflowed += batch.requests
            return
        sheet.add_sheet(batch.sheet)

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


def _batch(batches: dict[Key, Batch], key: Key, width: int) -> Batch:
    batch = batches.get(key)
    if batch is None:
        batch = batches[key] = Batch(width)
    return batch


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

    def fold(self, *, narrow: bool) -> bool:
        """Add some requests to their series; whether any are left, as for a minute."""
        left = [minute.fold(narrow=narrow) for minute in self._minutes.values()]
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
