"""What finished requests measure, many at a time: their values, and how often each bucket came up.

A code is a measure's place times `STRIDE`, plus 1 and the bucket, or plus 0 for a value of zero.
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import chain
from math import ceil, log2
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from controlplane.gateway.ports import FinishedRequest
from controlplane.kernel.histogram import BUCKETS_PER_OCTAVE
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
from controlplane.kernel.objectives.counting import SHED_CODE
from controlplane.kernel.spans import ABSENT, INDEX, SPANS
from controlplane.kernel.statuses import CLIENT_LEFT

Ints = NDArray[np.int64]

STRIDE = 2_048
NAMES = (*MEASURES, *REQUEST_EVENTS)
PLACE = {name: place for place, name in enumerate(NAMES)}
WIDE, NARROW, OWN = len(MEASURES), len(HEADLINES), len(OWN_MEASURES)
# Of a full fleet, and of a class of priority that is being refused to protect others.
SHED_CODES = frozenset(("server_is_overloaded", SHED_CODE))

_BITS = 63
_MILLI_TOKENS = 1_000 * 1_000_000
_MEASURED = [INDEX[name] for name in (*STAGE_NAMES, *PHASES, GATEWAY_WAIT, *LAYERS)]
_TIMES = [len(SPANS) + index for index in _MEASURED]
_TOTAL, _TTFT, _GAPS, _RATE, _OVERHEAD, _REST, _RTT = (PLACE[name] for name in WHOLE)
_STAGES = slice(len(WHOLE), len(WHOLE) + len(STAGE_NAMES))
_INFER = PLACE["s5_infer"]
_BASES: Ints = np.arange(WIDE, dtype=np.int64) * STRIDE
_GAPS_BASE = STRIDE * _GAPS
_EVENTS = {name: STRIDE * PLACE[name] + 1 for name in REQUEST_EVENTS}
_FINISHES = {"": 0, **{finish: _EVENTS[name] for finish, name in FINISH_EVENTS.items()}}


def _bucket(value: int) -> int:
    return ceil(log2(value) * BUCKETS_PER_OCTAVE)


def _last_of(index: int) -> int:
    """The greatest value whose bucket is at most this one."""
    near = int(2.0 ** (index / BUCKETS_PER_OCTAVE))
    slack = 2 + (near >> 40)
    low = max(1, near - slack)
    return low - 1 + bisect_right(range(low, near + slack), index, key=_bucket)


# The last value of each code: found with the same logarithm that a histogram takes, since numpy's
# may differ in its last bit. Nearly every time is under 65 ms, and a table is faster than a search.
_LAST: Ints = np.array(
    [0, *(_last_of(index) for index in range(_BITS * BUCKETS_PER_OCTAVE)), 2**_BITS - 1]
)
_CODES = np.searchsorted(_LAST, np.arange(65_536)).astype(np.int16)


class Measurements(NamedTuple):
    """Requests in their order: a row of `values` and one of `maxima` each, by measure; they differ
    for gaps between tokens, whose value is their sum.

    `rows`, `codes` and `counts` tell how often a request had a code: first those of tenants' own
    measures, then from `heads` on the other headlines and events, then from `layers` on layers.
    """

    values: Ints
    maxima: Ints
    rows: Ints
    codes: Ints
    counts: Ints
    heads: int
    layers: int


def codes_of(values: Ints) -> Ints:
    """Within their measures, of values that are not negative."""
    codes = _CODES.take(values, mode="clip").astype(np.int64)
    long = values >= len(_CODES)
    codes[long] = np.searchsorted(_LAST, values[long])
    return codes


def measure(records: Sequence[FinishedRequest]) -> Measurements:
    """Everything of some requests. What did not happen is 0 in values, and has no code."""
    size = len(records)
    spans = np.frombuffer(b"".join([record.spans for record in records]), "<i4")
    spans = spans.reshape(size, 2 * len(SPANS))
    told = np.array(
        [(r.total_us, r.ttft_us, r.output_tokens, r.client_rtt_us) for r in records], np.int64
    )
    gaps = _gaps([record.inter_token_us for record in records])
    after_first = told[:, 2] - 1
    rated = (gaps.totals > 0) & (after_first > 0)
    values = np.zeros((size, WIDE), np.int64)
    values[:, _TOTAL], values[:, _TTFT], values[:, _GAPS] = told[:, 0], told[:, 1], gaps.totals
    values[:, _RTT] = told[:, 3]
    values[rated, _RATE] = after_first[rated] * _MILLI_TOKENS // gaps.totals[rated]
    values[:, len(WHOLE) :] = spans[:, _TIMES]
    np.maximum(values, 0, out=values)
    values[:, _OVERHEAD] = values[:, _TOTAL] - values[:, _INFER]
    # Each moment of a request is in one stage at most, so their times add up.
    values[:, _REST] = values[:, _TOTAL] - values[:, _STAGES].sum(axis=1)
    np.maximum(values, 0, out=values)
    maxima = values.copy()
    maxima[:, _GAPS] = gaps.longest
    counted = np.ones((size, WIDE), np.bool_)
    counted[:, _TTFT], counted[:, _GAPS], counted[:, _RATE] = told[:, 1] >= 0, False, rated
    counted[:, _RTT] = told[:, 3] >= 0
    counted[:, len(WHOLE) :] = spans[:, _MEASURED] != ABSENT
    found = codes_of(values) + _BASES
    parts = [gaps.often]
    for places in (slice(0, OWN), slice(OWN, NARROW), slice(NARROW, WIDE)):
        rows, _ = np.nonzero(counted[:, places])
        parts.append(_Often(rows, found[:, places][counted[:, places]], np.ones_like(rows)))
    parts.insert(-1, _events(records))
    heads = len(parts[0].rows) + len(parts[1].rows)
    layers = heads + len(parts[2].rows) + len(parts[3].rows)
    rows, codes, counts = map(np.concatenate, zip(*parts, strict=True))
    return Measurements(values, maxima, rows, codes, counts, heads, layers)


class _Often(NamedTuple):
    """How often requests had codes; all three are as long."""

    rows: Ints
    codes: Ints
    counts: Ints


class _Gaps(NamedTuple):
    """By request their sum and the longest, and how often each bucket came up."""

    totals: Ints
    longest: Ints
    often: _Often


def _gaps(found: Sequence[Sequence[int]]) -> _Gaps:
    size = len(found)
    lengths = np.array([len(each) for each in found], np.int64)
    totals, longest = np.zeros(size, np.int64), np.zeros(size, np.int64)
    gaps = np.fromiter(chain.from_iterable(found), np.int64, lengths.sum())
    if not len(gaps):
        return _Gaps(totals, longest, _Often(gaps, gaps, gaps))
    np.maximum(gaps, 0, out=gaps)
    some = lengths > 0
    starts = (np.cumsum(lengths) - lengths)[some]
    totals[some] = np.add.reduceat(gaps, starts)
    longest[some] = np.maximum.reduceat(gaps, starts)
    codes = codes_of(gaps)
    lowest = codes.min()
    # Gaps of a request are much alike, and are added to many series: counted first.
    width = codes.max() - lowest + 1
    counts = np.bincount(np.repeat(np.arange(size) * width, lengths) + codes - lowest)
    places = np.flatnonzero(counts)
    rows, codes = np.divmod(places, width)
    return _Gaps(totals, longest, _Often(rows, codes + (_GAPS_BASE + lowest), counts[places]))


def _events(records: Sequence[FinishedRequest]) -> _Often:
    found: list[tuple[int, int, int]] = []
    for row, record in enumerate(records):
        if record.status == CLIENT_LEFT:
            found.append((row, _EVENTS[CANCELLED], 1))
        elif record.error_code in SHED_CODES:
            found.append((row, _EVENTS[SHED], 1))
        if code := _FINISHES.get(record.finish, _EVENTS[FINISH_OTHER]):
            found.append((row, code, 1))
        if record.retries:
            found.append((row, _EVENTS[RETRIED], record.retries))
    return _Often(*np.array(found, np.int64).reshape(-1, 3).T)
