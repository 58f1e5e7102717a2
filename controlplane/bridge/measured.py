"""What one request measures, as counts of buckets: the part of telemetry that every request pays.

Requests that are alike are counted in one batch, and folding adds it to the sheets of all series
that it belongs to. Counts of all measures are in one dict: a code is the measure's place times
`STRIDE`, plus 1 and the bucket, or plus 0 for a value of zero.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import ceil, log2
from operator import add, itemgetter
from struct import Struct
from typing import NamedTuple

from controlplane.gateway.ports import RequestRecord
from controlplane.kernel.histogram import BUCKETS_PER_OCTAVE, Histogram
from controlplane.kernel.measures import (
    CANCELLED,
    FINISH_EVENTS,
    FINISH_OTHER,
    GATEWAY_WAIT,
    HEADLINES,
    LAYERS,
    MEASURES,
    OWN_MEASURES,
    PHASES,
    REQUEST_EVENTS,
    RETRIED,
    SHED,
    STAGE_NAMES,
    WHOLE,
)
from controlplane.kernel.objectives import SHED_CODE
from controlplane.kernel.spans import ABSENT, INDEX, SPANS
from controlplane.kernel.statuses import CLIENT_LEFT

STRIDE = 4_096
NAMES = (*MEASURES, *REQUEST_EVENTS)
PLACE = {name: place for place, name in enumerate(NAMES)}
# Nearly every time is under 65 ms, and a table is five times faster than a logarithm.
# An array, since a tuple of so many numbers does not stay in a processor's cache.
_CODES = array("h", [0, *(1 + ceil(log2(us) * BUCKETS_PER_OCTAVE) for us in range(1, 65_536))])
_TABLE_SIZE = len(_CODES)
_MILLI_TOKENS = 1_000 * 1_000_000

_MEASURED = [INDEX[name] for name in (*STAGE_NAMES, *PHASES, GATEWAY_WAIT, *LAYERS)]
_HEADS = len(HEADLINES) - len(WHOLE)
_SPANS = Struct(f"<{2 * len(SPANS)}i")
_STARTS = itemgetter(*_MEASURED)
_TIMES = itemgetter(*(len(SPANS) + index for index in _MEASURED))
_BASES = tuple(STRIDE * place for place in range(len(WHOLE), len(MEASURES)))
_TOTAL, _TTFT, _GAPS, _RATE, _OVERHEAD, _REST = (STRIDE * PLACE[name] for name in WHOLE)
_GAPS_PLACE = PLACE["inter_token"]
WIDE, NARROW, OWN = len(MEASURES), len(HEADLINES), len(OWN_MEASURES)
_STAGES = len(STAGE_NAMES)
_INFER = STAGE_NAMES.index("s5_infer")

# No room in the queue, or none for its priority.
SHED_CODES = frozenset(("server_is_overloaded", SHED_CODE))
_EVENTS = {name: STRIDE * PLACE[name] + 1 for name in REQUEST_EVENTS}
_FINISHES = {"": 0, **{finish: _EVENTS[name] for finish, name in FINISH_EVENTS.items()}}


class Gaps(NamedTuple):
    """A request's gaps between tokens: how many of each code, their sum and the longest."""

    codes: Mapping[int, int]
    total: int
    longest: int


class Measured(NamedTuple):
    """Codes and values of headlines (events have codes alone), then of layers; codes of what
    tenants have series of; and the gaps.

    Values are 0 for what did not happen.
    """

    heads: list[int]
    heads_us: tuple[int, ...]
    rests: list[int]
    rests_us: tuple[int, ...]
    own: list[int]
    gaps: Gaps


NO_GAPS = Gaps({}, 0, 0)


def measure(record: RequestRecord) -> Measured:
    """Everything of one request."""
    spans = _SPANS.unpack(record.spans)
    starts, times_us = _STARTS(spans), _TIMES(spans)
    if min(times_us) < 0:
        times_us = tuple(max(0, us) for us in times_us)
    codes = [
        base + (_CODES[us] if us < _TABLE_SIZE else _code(us))
        for base, start, us in zip(_BASES, starts, times_us, strict=True)
        if start != ABSENT
    ]
    ran = _HEADS - starts[:_HEADS].count(ABSENT)
    gaps = _gaps(record.inter_token_us)
    total_us, ttft_us, rate = max(0, record.total_us), max(0, record.ttft_us), 0
    overhead_us = max(0, total_us - times_us[_INFER])
    # Each moment of a request is in one stage at most, so their times add up.
    rest_us = max(0, total_us - sum(times_us[:_STAGES]))
    own = [_TOTAL + _code(total_us)]
    if record.ttft_us >= 0:
        own.append(_TTFT + _code(ttft_us))
    heads = [*codes[:ran], *own, _OVERHEAD + _code(overhead_us), _REST + _code(rest_us)]
    if gaps.total > 0 and record.output_tokens > 1:
        rate = (record.output_tokens - 1) * _MILLI_TOKENS // gaps.total
        heads.append(_RATE + _code(rate))
    _count_events(record, heads)
    whole = (total_us, ttft_us, gaps.total, rate, overhead_us, rest_us)
    return Measured(heads, whole + times_us[:_HEADS], codes[ran:], times_us[_HEADS:], own, gaps)


def _gaps(inter_token_us: Sequence[int]) -> Gaps:
    """Counted once, and added to several batches."""
    if not inter_token_us:
        return NO_GAPS
    longest = max(inter_token_us)
    if longest < _TABLE_SIZE and min(inter_token_us) >= 0:
        counts = Counter(map(_CODES.__getitem__, inter_token_us))
        codes = {_GAPS + code: count for code, count in counts.items()}
        return Gaps(codes, sum(inter_token_us), longest)
    positive = [max(0, us) for us in inter_token_us]
    return Gaps(Counter(_GAPS + _code(us) for us in positive), sum(positive), max(0, longest))


def _code(value: int) -> int:
    """Of a value within its measure; it must not be negative."""
    if value < _TABLE_SIZE:
        return _CODES[value]
    return 1 + ceil(log2(value) * BUCKETS_PER_OCTAVE)


def _count_events(record: RequestRecord, codes: list[int]) -> None:
    """What became of it."""
    if record.status == CLIENT_LEFT:
        codes.append(_EVENTS[CANCELLED])
    elif record.error_code in SHED_CODES:
        codes.append(_EVENTS[SHED])
    if code := _FINISHES.get(record.finish, _EVENTS[FINISH_OTHER]):
        codes.append(code)
    if record.retries:
        codes += [_EVENTS[RETRIED]] * record.retries


class Sheet:
    """Counts and sums of the first `width` measures; of several requests, or of a minute."""

    __slots__ = ("counts", "maxima", "totals", "width")

    def __init__(self, width: int) -> None:
        self.width = width
        self.counts: dict[int, int] = {}
        self.totals = [0] * width
        self.maxima = [0] * width

    def add(self, counts: Mapping[int, int]) -> None:
        """Add counts."""
        mine = self.counts
        if not mine:
            mine.update(counts)
            return
        for code, count in counts.items():
            mine[code] = mine.get(code, 0) + count

    def add_sheet(self, other: Sheet) -> None:
        """Add all of another's; its measures beyond this one's width are not among its counts."""
        self.add(other.counts)
        self.totals = list(map(add, self.totals, other.totals))
        self.maxima = list(map(max, self.maxima, other.maxima))

    def histograms(self) -> dict[str, Histogram]:
        """By measure, of those that were measured."""
        made: dict[int, Histogram] = {}
        for code, count in self.counts.items():
            place, index = divmod(code, STRIDE)
            histogram = made.get(place)
            if histogram is None:
                histogram = made[place] = Histogram()
            if index:
                histogram.buckets[index - 1] = count
            else:
                histogram.zeros = count
        for place, histogram in made.items():
            if place < self.width:
                histogram.total, histogram.maximum = self.totals[place], self.maxima[place]
            else:
                histogram.total, histogram.maximum = histogram.count, 1
        return {NAMES[place]: histogram for place, histogram in made.items()}


class Batch:
    """Requests that are alike in all that a sheet tells apart, since they were last folded."""

    __slots__ = ("requests", "sheet")

    def __init__(self, width: int) -> None:
        self.requests = 0
        self.sheet = Sheet(width)

    def add(self, codes: Iterable[int], values: tuple[int, ...], gaps: Gaps) -> None:
        """One more request; `values` are as many as the width."""
        self.requests += 1
        sheet = self.sheet
        counts, longest = sheet.counts, sheet.maxima[_GAPS_PLACE]
        for code in codes:
            counts[code] = counts.get(code, 0) + 1
        for code, count in gaps.codes.items():
            counts[code] = counts.get(code, 0) + count
        sheet.totals = list(map(add, sheet.totals, values))
        # Twice as fast as `map(max, ...)`.
        sheet.maxima = [
            old if old > new else new for old, new in zip(sheet.maxima, values, strict=True)
        ]
        # A sum of gaps is no gap.
        sheet.maxima[_GAPS_PLACE] = max(longest, gaps.longest)
