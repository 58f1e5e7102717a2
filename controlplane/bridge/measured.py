"""What one request measures, as counts of buckets: the part of telemetry that every request pays.

A batch gathers requests that are alike in all dimensions since the last fold; folding adds it to
the sheets of all series that it belongs to. Both keep the counts of all their measures in one dict:
a code is the measure's place times `STRIDE`, plus 1 and the bucket, or plus 0 for a value of zero.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import ceil, log2
from operator import add, itemgetter
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
_CODES = array("h", [0, *(1 + ceil(log2(us) * BUCKETS_PER_OCTAVE) for us in range(1, 65_536))])
_TABLE_SIZE = len(_CODES)
_MILLI_TOKENS = 1_000 * 1_000_000

_HEADS = [INDEX[name] for name in (*STAGE_NAMES, *PHASES, GATEWAY_WAIT)]
_RESTS = [INDEX[name] for name in LAYERS]
_HEAD_STARTS, _REST_STARTS = itemgetter(*_HEADS), itemgetter(*_RESTS)
_HEAD_TIMES = itemgetter(*(len(SPANS) + index for index in _HEADS))
_REST_TIMES = itemgetter(*(len(SPANS) + index for index in _RESTS))
_HEAD_BASES = tuple(STRIDE * place for place in range(len(WHOLE), len(HEADLINES)))
_REST_BASES = tuple(STRIDE * place for place in range(len(HEADLINES), len(MEASURES)))
_TOTAL, _TTFT, _GAPS, _RATE, _OVERHEAD, _REST = (STRIDE * PLACE[name] for name in WHOLE)
_STAGES = len(STAGE_NAMES)
_INFER = STAGE_NAMES.index("s5_infer")

_EVENTS = {name: STRIDE * PLACE[name] + 1 for name in REQUEST_EVENTS}
_FINISHES = {"": 0, **{finish: _EVENTS[name] for finish, name in FINISH_EVENTS.items()}}


class Times(NamedTuple):
    """The spans of a request: starts and microseconds, of headlines and of layers."""

    head_starts: tuple[int, ...]
    head_us: tuple[int, ...]
    rest_starts: tuple[int, ...]
    rest_us: tuple[int, ...]

    @property
    def stages(self) -> Iterator[tuple[str, int]]:
        """Those stages that ran."""
        for name, start, us in zip(STAGE_NAMES, self.head_starts, self.head_us, strict=False):
            if start != ABSENT:
                yield name, us


class Gaps(NamedTuple):
    """A request's gaps between tokens: how many of each code, their sum and the longest."""

    codes: Mapping[int, int]
    total: int
    maximum: int


def times_of(packed: bytes) -> Times:
    """Spans out of their compact form."""
    spans = array("i")
    spans.frombytes(packed)
    if min(spans[len(SPANS) :]) < 0:
        spans = array("i", [*spans[: len(SPANS)], *(max(0, us) for us in spans[len(SPANS) :])])
    return Times(_HEAD_STARTS(spans), _HEAD_TIMES(spans), _REST_STARTS(spans), _REST_TIMES(spans))


def gaps_of(inter_token_us: Sequence[int]) -> Gaps | None:
    """Counted once, and added to several series."""
    if not inter_token_us:
        return None
    longest = max(inter_token_us)
    if min(inter_token_us) >= 0 and longest < _TABLE_SIZE:
        return Gaps(Counter(map(_CODES.__getitem__, inter_token_us)), sum(inter_token_us), longest)
    positive = [max(0, us) for us in inter_token_us]
    return Gaps(Counter(map(_code, positive)), sum(positive), max(0, longest))


def _code(value: int) -> int:
    """Of a value within its measure; it must not be negative."""
    if value < _TABLE_SIZE:
        return _CODES[value]
    return 1 + ceil(log2(value) * BUCKETS_PER_OCTAVE)


class Batch:
    """Requests alike in all dimensions: counts of headlines and events, and of layers apart."""

    __slots__ = ("heads", "maxima", "requests", "rests", "totals")

    def __init__(self) -> None:
        self.requests = 0
        self.heads: dict[int, int] = {}
        self.rests: dict[int, int] = {}
        self.totals = [0] * len(MEASURES)
        self.maxima = [0] * len(MEASURES)

    def add(self, record: RequestRecord, times: Times, gaps: Gaps | None) -> None:
        """Count one request."""
        self.requests += 1
        head_starts, head_us, rest_starts, rest_us = times
        total_us, ttft_us = max(0, record.total_us), max(0, record.ttft_us)
        overhead_us = max(0, total_us - head_us[_INFER])
        # Each moment of a request is in one stage at most, so their times add up.
        rest = max(0, total_us - sum(head_us[:_STAGES]))
        codes = [
            base + (_CODES[us] if us < _TABLE_SIZE else _code(us))
            for base, start, us in zip(_HEAD_BASES, head_starts, head_us, strict=True)
            if start != ABSENT
        ]
        codes += (_TOTAL + _code(total_us), _OVERHEAD + _code(overhead_us), _REST + _code(rest))
        if record.ttft_us >= 0:
            codes.append(_TTFT + _code(ttft_us))
        gaps_us = longest_us = rate = 0
        heads = self.heads
        if gaps is not None:
            gaps_us, longest_us = gaps.total, gaps.maximum
            for code, count in gaps.codes.items():
                code += _GAPS
                heads[code] = heads.get(code, 0) + count
            if gaps_us > 0 and record.output_tokens > 1:
                rate = (record.output_tokens - 1) * _MILLI_TOKENS // gaps_us
                codes.append(_RATE + _code(rate))
        _count_events(record, codes)
        for code in codes:
            heads[code] = heads.get(code, 0) + 1
        rests = self.rests
        for base, start, us in zip(_REST_BASES, rest_starts, rest_us, strict=True):
            if start != ABSENT:
                code = base + (_CODES[us] if us < _TABLE_SIZE else _code(us))
                rests[code] = rests.get(code, 0) + 1
        whole = (total_us, ttft_us, gaps_us, rate, overhead_us, rest)
        self.totals = list(map(add, self.totals, whole + head_us + rest_us))
        whole = (total_us, ttft_us, longest_us, rate, overhead_us, rest)
        self.maxima = list(map(max, self.maxima, whole + head_us + rest_us))


def _count_events(record: RequestRecord, codes: list[int]) -> None:
    """What became of it."""
    if record.status == CLIENT_LEFT:
        codes.append(_EVENTS[CANCELLED])
    elif record.error_code == SHED_CODE:
        codes.append(_EVENTS[SHED])
    if code := _FINISHES.get(record.finish, _EVENTS[FINISH_OTHER]):
        codes.append(code)
    if record.retries:
        codes += [_EVENTS[RETRIED]] * record.retries


class OwnBatch:
    """Requests of one project and model: total, time to first token, gaps."""

    __slots__ = ("counts", "maxima", "requests", "totals")

    def __init__(self) -> None:
        self.requests = 0
        self.counts: dict[int, int] = {}
        self.totals = [0, 0, 0]
        self.maxima = [0, 0, 0]

    def add(self, record: RequestRecord, gaps: Gaps | None) -> None:
        """Count one request."""
        self.requests += 1
        counts, totals, maxima = self.counts, self.totals, self.maxima
        for base, us in ((_TOTAL, record.total_us), (_TTFT, record.ttft_us)):
            if us >= 0:
                place, code = base // STRIDE, base + _code(us)
                counts[code] = counts.get(code, 0) + 1
                totals[place] += us
                maxima[place] = max(maxima[place], us)
        if gaps is not None:
            for code, count in gaps.codes.items():
                code += _GAPS
                counts[code] = counts.get(code, 0) + count
            totals[2] += gaps.total
            maxima[2] = max(maxima[2], gaps.maximum)


class Sheet:
    """All measures of one series key in one minute; the first `width` of their names."""

    __slots__ = ("counts", "maxima", "totals", "width")

    def __init__(self, width: int) -> None:
        self.width = width
        self.counts: dict[int, int] = {}
        self.totals = [0] * width
        self.maxima = [0] * width

    def fold(self, counts: Mapping[int, int]) -> None:
        """Add counts."""
        mine = self.counts
        for code, count in counts.items():
            mine[code] = mine.get(code, 0) + count

    def fold_sums(self, totals: Sequence[int], maxima: Sequence[int]) -> None:
        """Add the sums that belong to counts; those beyond the width are not for this sheet."""
        self.totals = list(map(add, self.totals, totals))
        self.maxima = list(map(max, self.maxima, maxima))

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
