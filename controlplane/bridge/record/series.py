"""Series and usage of the present minutes, in memory, with a bound on the number of series.

Every flush writes a minute's whole state so far under the gateway's own writer id, so that repeats
change nothing. Not a store: what is flushed and over is forgotten.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from controlplane.bridge.record.exemplars import OWNERS_MAX, NewExemplar, Owner, Shown
from controlplane.bridge.record.measured import NARROW, OWN, WIDE, Alike, Measurements, measure
from controlplane.bridge.record.sheets import NOWHERE, SeriesSheet, Sheets
from controlplane.gateway.nodes.drafts import DraftedTokens
from controlplane.gateway.ports import FinishedRequest
from controlplane.kernel.histogram import Histogram
from controlplane.kernel.measures import ACCEPTED, DRAFTED, GAUGES, PREEMPTED
from controlplane.kernel.statuses import CLIENT_LEFT, FAILED_FROM

OTHER = "other"
ALL_MODELS = ""
# Of any length, of any status.
ANY = -1
EVERYONE = "0" * 32
MINUTE_S = 60
SERIES_MAX = 10_000
SAMPLED_MAX = 500
# Requests that wait to be folded: at 200 a second more than any tick leaves.
WAITING_MAX = 2_048
# Folding this many takes one to three milliseconds, as they differ; fewer at once cost more each.
FOLDED_AT_ONCE = 128
# Models, and combinations of dimensions, whose rows are not looked up again.
PLACES_MAX = 4_096
COUNTERS_MAX = 20_000
MINUTES_MAX = 15
USAGE_COUNTS = 9
# How many series of a width a request is in: of its model and all, of its project and organization
# by both, and of a dimension each.
WIDTHS = {WIDE: 2, OWN: 4, NARROW: 5}

NarrowKey = tuple[str, str, str, str, int, int]
# Organization, project, API key, model, route and pool.
UsageKey = tuple[str, str, str, str, str, str]


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


class GaugeSample(NamedTuple):
    """One value of a gauge or an event, of a model in a pool; blank for all of them."""

    model: str
    pool: str
    measure: str
    value: int


class QueueDepth(NamedTuple):
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
        total = self.in_gateway + self.on_nodes
        return self.in_gateway, self.on_nodes, total, *self.priorities, self.oldest_ms


class SheetRows(NamedTuple):
    """Where requests that are alike go: a row of a sheet each, `NOWHERE` where there is none.

    `refused` is how many of their series there was no room for; `owner` is the number of a project
    and model among those of the minute, -1 where there were too many.
    """

    rows: list[int]
    refused: int
    owner: int = -1


_NO_OWNER = SheetRows([NOWHERE] * WIDTHS[OWN], 1)


class Minute:
    """All series of one minute; `dirty` ones changed since they were last written."""

    def __init__(self, start_s: int) -> None:
        self.start_s = start_s
        self.sheets: dict[SeriesKey, SeriesSheet] = {}
        self.samples: dict[SeriesKey, dict[str, Histogram]] = {}
        self.usage: dict[UsageKey, list[int]] = {}
        self.dirty: set[SeriesKey] = set()
        self.dirty_usage: set[UsageKey] = set()
        self.exemplars: list[NewExemplar] = []
        self.overflowed = 0
        self._waiting: list[FinishedRequest] = []
        # Narrow series that changed, and are not to be written yet.
        self._later: set[SeriesKey] = set()
        self._books = {width: Sheets(width) for width in WIDTHS}
        # By row of those; the first stands for `NOWHERE`.
        self._keys: dict[int, list[SeriesKey]] = {width: [SeriesKey()] for width in WIDTHS}
        self._models: dict[str, SheetRows] = {}
        self._owners: dict[Owner, SheetRows] = {}
        self._narrow: dict[NarrowKey, SheetRows] = {}
        self._shown = Shown()
        self._series = 0

    @property
    def clean(self) -> bool:
        return not (self.dirty or self.dirty_usage or self.exemplars or self.unfolded)

    @property
    def unfolded(self) -> bool:
        return bool(self._waiting or self._later)

    def add(self, record: FinishedRequest) -> None:
        """Keep a finished request until it is folded; one that finds too many folds some."""
        self._waiting.append(record)
        if len(self._waiting) > WAITING_MAX:
            self._fold_some()

    def fold(self, *, narrow: bool = True) -> bool:
        """Add some requests to their series; whether any are left.

        Narrow series that changed are dirty only once that is asked for.
        """
        if self._waiting:
            self._fold_some()
        if narrow and not self._waiting:
            self.dirty |= self._later
            self._later.clear()
        return bool(self._waiting)

    def fold_all(self) -> None:
        while self.fold():
            pass

    def rows(self, key: SeriesKey) -> Iterator[tuple[str, Histogram]]:
        """Measures and histograms of one key; those without values are left out."""
        if key in self.sheets:
            yield from self.sheets[key].histograms().items()
        yield from self.samples.get(key, {}).items()

    def sample(self, depths: Iterable[QueueDepth]) -> None:
        for depth in depths:
            for name, value in zip(GAUGES, depth.values, strict=True):
                self.note(GaugeSample(depth.model, "", name, value))

    def drafts(self, taken: Iterable[DraftedTokens]) -> None:
        """Count what nodes told, for their model and for all models together."""
        for model, drafted, accepted, preempted in taken:
            values = {DRAFTED: drafted, ACCEPTED: accepted}
            if preempted:
                values[PREEMPTED] = preempted
            for name, value in values.items():
                self.note(GaugeSample(ALL_MODELS, "", name, value))
                self.note(GaugeSample(model, "", name, value))

    def note(self, sample: GaugeSample) -> None:
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

    def _fold_some(self) -> None:
        records = self._waiting[:FOLDED_AT_ONCE]
        del self._waiting[:FOLDED_AT_ONCE]
        for known in (self._models, self._narrow):
            if len(known) > PLACES_MAX:
                known.clear()
        measured = measure(records)
        kinds = measured.kinds
        models = [self._of_model(kind) for kind in kinds]
        owners = [self._of_owner(kind) for kind in kinds]
        self.dirty |= self._add(models, WIDE, measured, len(measured.codes))
        self.dirty |= self._add(owners, OWN, measured, measured.heads)
        narrow = [self._of_dimensions(kind) for kind in kinds]
        self._later |= self._add(narrow, NARROW, measured, measured.layers)
        owned = np.array([place.owner for place in owners])[measured.groups]
        self.exemplars += self._shown.choose(records, owned, measured, len(self.exemplars))
        used = np.stack(measured.used, axis=1).tolist()
        for kind, (requests, prompt, cached, *others) in zip(kinds, used, strict=True):
            self._add_usage(kind, requests, [prompt - cached, cached, *others])

    def _add(
        self, places: Sequence[SheetRows], width: int, measured: Measurements, last: int
    ) -> set[SeriesKey]:
        """Groups to all sheets of a width; answers with those that changed."""
        rows = np.array([place.rows for place in places])
        self._books[width].add(rows, measured, last)
        for place, requests in zip(places, measured.used.requests.tolist(), strict=True):
            self.overflowed += place.refused * requests
        keys = self._keys[width]
        return {keys[row] for row in set(rows.reshape(-1).tolist()) if row != NOWHERE}

    def _of_model(self, kind: Alike) -> SheetRows:
        model = kind.model
        place = self._models.get(model)
        if place is None:
            keys = [SeriesKey(model=name) for name in dict.fromkeys((model, ALL_MODELS))]
            place = self._models[model] = self._place(keys, WIDE)
        return place

    def _of_owner(self, kind: Alike) -> SheetRows:
        owner = (kind.organization, kind.project, kind.model)
        place = self._owners.get(owner)
        if place is None:
            number = len(self._owners)
            if number >= OWNERS_MAX:
                return _NO_OWNER
            organization, project, model = owner
            keys = [
                SeriesKey(organization, each, name)
                for each in dict.fromkeys((project, EVERYONE))
                for name in dict.fromkeys((model, ALL_MODELS))
            ]
            place = self._owners[owner] = self._place(keys, OWN)._replace(owner=number)
        return place

    def _of_dimensions(self, kind: Alike) -> SheetRows:
        model, bucket, status = kind.model, kind.prompt_bucket, kind.status // 100
        narrow = (model, kind.route, kind.pool, kind.region, bucket, status)
        place = self._narrow.get(narrow)
        if place is None:
            keys = [
                SeriesKey(model=model, prompt_bucket=bucket),
                SeriesKey(model=model, status_class=status),
            ]
            if kind.route:
                keys.append(SeriesKey(model=model, route=kind.route))
            if kind.pool:
                keys.append(SeriesKey(model=model, pool=kind.pool))
            if kind.region:
                keys.append(SeriesKey(model=model, region=kind.region))
            place = self._narrow[narrow] = self._place(keys, NARROW)
        return place

    def _place(self, keys: Sequence[SeriesKey], width: int) -> SheetRows:
        rows = [self._row(key, width) for key in keys]
        return SheetRows(rows + [NOWHERE] * (WIDTHS[width] - len(rows)), rows.count(NOWHERE))

    def _row(self, key: SeriesKey, width: int) -> int:
        """Made where it is missing and there is room: what has none is in wider series alone."""
        sheet = self.sheets.get(key)
        if sheet is None:
            if self._series + width > SERIES_MAX:
                return NOWHERE
            self._series += width
            sheet = self.sheets[key] = self._books[width].make()
            self._keys[width].append(key)
        return sheet.row

    def _add_usage(self, kind: Alike, requests: int, used: list[int]) -> None:
        """`used` is in the order of a usage key's counts, from the fourth on."""
        key = (kind.organization, kind.project, kind.key, kind.model, kind.route, kind.pool)
        counts = self.usage.get(key)
        if counts is None:
            if len(self.usage) >= COUNTERS_MAX:
                self.overflowed += requests
                key = (kind.organization, EVERYONE, EVERYONE, OTHER, OTHER, "")
            counts = self.usage.setdefault(key, [0] * USAGE_COUNTS)
        self.dirty_usage.add(key)
        gone = kind.status == CLIENT_LEFT
        failed = kind.status >= FAILED_FROM and not gone
        changes = [requests, requests * failed, requests * gone, *used]
        for place, change in enumerate(changes):
            counts[place] += change


class Minutes:
    """The minutes that are not yet both over and written; `retired` gets each that is forgotten."""

    def __init__(self, retired: Callable[[Minute], None]) -> None:
        self._retired = retired
        self._minutes: dict[int, Minute] = {}
        self.overflowed = 0
        self.forgotten = 0

    def kept(self) -> list[Minute]:
        return list(self._minutes.values())

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

    def at(self, now_s: float) -> Minute:
        """The minute in which something is counted now."""
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
