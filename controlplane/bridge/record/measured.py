"""What finished requests measure, many at a time: their values, and how often each bucket came up
in requests that are alike.

A code is a measure's place times `STRIDE`, plus 1 and the bucket, or plus 0 for a value of zero.
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import chain
from math import ceil, log2
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from controlplane.gateway.ports import FinishedRequest
from controlplane.kernel import measures
from controlplane.kernel.histogram import BUCKETS_PER_OCTAVE
from controlplane.kernel.objectives.counting import SHED_CODE
from controlplane.kernel.spans import ABSENT, INDEX, SPANS
from controlplane.kernel.statuses import CLIENT_LEFT

Ints = NDArray[np.int64]

STRIDE = 2_048
NAMES = (*measures.MEASURES, *measures.REQUEST_EVENTS)
PLACE = {name: place for place, name in enumerate(NAMES)}
WIDE, NARROW, OWN = len(measures.MEASURES), len(measures.HEADLINES), len(measures.OWN_MEASURES)
# Of a full fleet, and of a class of priority that is being refused to protect others.
SHED_CODES = frozenset(("server_is_overloaded", SHED_CODE))

_BITS = 63
_MILLI_TOKENS = 1_000 * 1_000_000
_MEASURED = [
    INDEX[name]
    for name in (*measures.STAGE_NAMES, *measures.PHASES, measures.GATEWAY_WAIT, *measures.LAYERS)
]
_TIMES = [len(SPANS) + index for index in _MEASURED]
_TOTAL, _TTFT, _GAPS, _RATE, _OVERHEAD, _REST, _RTT = (PLACE[name] for name in measures.WHOLE)
_STAGES = slice(len(measures.WHOLE), len(measures.WHOLE) + len(measures.STAGE_NAMES))
_INFER = PLACE["s5_infer"]
# Codes with their group above them, and above that the part of a request's codes that they are of.
_GROUP_BIT, _PART_BIT = 20, 40
_MASK = (1 << _GROUP_BIT) - 1
_PARTS = (1 << _PART_BIT, 2 << _PART_BIT)
_BASES: Ints = np.arange(WIDE, dtype=np.int64) * STRIDE
_BASES[OWN:NARROW] += _PARTS[0]
_BASES[NARROW:] += _PARTS[1]
_GAPS_BASE = STRIDE * _GAPS
_FIGURES = (
    "total_us", "ttft_us", "client_rtt_us", "retries", "prompt_tokens", "cached_tokens",
    "output_tokens", "cost_nano", "available_tokens", "captured_tokens",
)  # fmt: skip
_TOLD_TOTAL, _TOLD_TTFT, _TOLD_RTT, _TOLD_RETRIES, _TOLD_PROMPT, _, _TOLD_OUTPUT = range(7)
_figures = attrgetter(*_FIGURES)
_EVENTS = {name: STRIDE * PLACE[name] + 1 for name in measures.REQUEST_EVENTS}
_FINISHES = {"": 0, **{finish: _EVENTS[name] for finish, name in measures.FINISH_EVENTS.items()}}


class Alike(NamedTuple):
    """What requests have in common that are in the same series, usage and events."""

    organization: str
    project: str
    key: str
    model: str
    route: str
    pool: str
    region: str
    status: int
    error_code: str
    finish: str
    prompt_bucket: int


_names = attrgetter(*Alike._fields[:-1])


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


class Used(NamedTuple):
    """What requests of a group used, for the counts of usage."""

    requests: Ints
    prompt: Ints
    cached: Ints
    output: Ints
    cost_nano: Ints
    available: Ints
    captured: Ints


class Measurements(NamedTuple):
    """`values` has a row for each request in its order, and `groups` its place among the kinds. All
    else is by kind: `sums` and `maxima` are of values, but for gaps between tokens of all of them.

    `rows`, `codes` and `counts` tell how often a kind had a code: first those of tenants' own
    measures, then from `heads` on the other headlines and events, then from `layers` on layers.
    """

    values: Ints
    groups: Ints
    kinds: list[Alike]
    sums: Ints
    maxima: Ints
    used: Used
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
    told = np.fromiter(
        chain.from_iterable(map(_figures, records)), np.int64, len(records) * len(_FIGURES)
    ).reshape(len(records), len(_FIGURES))
    kinds, groups = _kinds(records, told[:, _TOLD_PROMPT])
    gaps = _gaps([record.inter_token_us for record in records], groups)
    values, counted = _values(records, told, gaps)
    order = np.argsort(groups, kind="stable")
    starts = np.searchsorted(groups, np.arange(len(kinds)), sorter=order)
    ordered = values[order]
    maxima = np.maximum.reduceat(ordered, starts)
    maxima[:, _GAPS] = np.maximum.reduceat(gaps.longest[order], starts)
    used = np.add.reduceat(told[order], starts)
    requests = np.bincount(groups)
    events = _events(kinds, requests.tolist(), used[:, _TOLD_RETRIES].tolist())
    keys = codes_of(values)
    keys += _BASES
    keys += (groups << _GROUP_BIT)[:, None]
    keys, counts = np.unique(keys[counted], return_counts=True)
    found = _Often(keys >> _GROUP_BIT & _MASK, keys & _MASK, counts)
    cuts = np.searchsorted(keys, _PARTS).tolist()
    own, headlines, layers = (
        _Often(*(column[part] for column in found))
        for part in (slice(cuts[0]), slice(*cuts), slice(cuts[1], None))
    )
    parts = [gaps.often, own, headlines, events, layers]
    return Measurements(
        values=values,
        groups=groups,
        kinds=kinds,
        sums=np.add.reduceat(ordered, starts),
        maxima=maxima,
        used=Used(requests, *used.T[_TOLD_PROMPT:]),
        rows=np.concatenate([part.rows for part in parts]),
        codes=np.concatenate([part.codes for part in parts]),
        counts=np.concatenate([part.counts for part in parts]),
        heads=len(gaps.often.rows) + cuts[0],
        layers=len(gaps.often.rows) + cuts[1] + len(events.rows),
    )


def _kinds(records: Sequence[FinishedRequest], prompts: Ints) -> tuple[list[Alike], Ints]:
    buckets = np.searchsorted(measures.PROMPT_BUCKETS, prompts).tolist()
    places: dict[tuple[tuple[Any, ...], int], int] = {}
    groups = [
        places.setdefault(kind, len(places))
        for kind in zip(map(_names, records), buckets, strict=True)
    ]
    return [Alike._make((*names, bucket)) for names, bucket in places], np.array(groups, np.int64)


class _Often(NamedTuple):
    """How often groups had codes; all three are as long."""

    rows: Ints
    codes: Ints
    counts: Ints


class _Gaps(NamedTuple):
    """By request their sum and the longest; by group how often each bucket came up."""

    totals: Ints
    longest: Ints
    often: _Often


def _gaps(found: Sequence[Sequence[int]], groups: Ints) -> _Gaps:
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
    # Gaps are much alike, and are added to many series: counted first.
    width = codes.max() - lowest + 1
    counts = np.bincount(np.repeat(groups * width, lengths) + codes - lowest)
    places = np.flatnonzero(counts)
    rows, codes = np.divmod(places, width)
    return _Gaps(totals, longest, _Often(rows, codes + (_GAPS_BASE + lowest), counts[places]))


def _values(
    records: Sequence[FinishedRequest], told: Ints, gaps: _Gaps
) -> tuple[Ints, NDArray[np.bool_]]:
    """Values by request and measure, and which of them happened."""
    size = len(records)
    spans = np.frombuffer(b"".join([record.spans for record in records]), "<i4")
    spans = spans.reshape(size, 2 * len(SPANS))
    after_first = told[:, _TOLD_OUTPUT] - 1
    rated = (gaps.totals > 0) & (after_first > 0)
    values = np.zeros((size, WIDE), np.int64)
    ttft, rtt = told[:, _TOLD_TTFT], told[:, _TOLD_RTT]
    values[:, _TOTAL], values[:, _TTFT], values[:, _RTT] = told[:, _TOLD_TOTAL], ttft, rtt
    values[:, _GAPS] = gaps.totals
    values[rated, _RATE] = after_first[rated] * _MILLI_TOKENS // gaps.totals[rated]
    values[:, len(measures.WHOLE) :] = spans[:, _TIMES]
    np.maximum(values, 0, out=values)
    values[:, _OVERHEAD] = values[:, _TOTAL] - values[:, _INFER]
    # Each moment of a request is in one stage at most, so their times add up.
    values[:, _REST] = values[:, _TOTAL] - values[:, _STAGES].sum(axis=1)
    np.maximum(values, 0, out=values)
    counted = np.ones((size, WIDE), np.bool_)
    counted[:, _TTFT], counted[:, _RTT] = ttft >= 0, rtt >= 0
    counted[:, _GAPS], counted[:, _RATE] = False, rated
    counted[:, len(measures.WHOLE) :] = spans[:, _MEASURED] != ABSENT
    return values, counted


def _events(kinds: Sequence[Alike], requests: list[int], retries: list[int]) -> _Often:
    found: list[tuple[int, int, int]] = []
    for row, (kind, times, tried) in enumerate(zip(kinds, requests, retries, strict=True)):
        if kind.status == CLIENT_LEFT:
            found.append((row, _EVENTS[measures.CANCELLED], times))
        elif kind.error_code in SHED_CODES:
            found.append((row, _EVENTS[measures.SHED], times))
        if code := _FINISHES.get(kind.finish, _EVENTS[measures.FINISH_OTHER]):
            found.append((row, code, times))
        if tried:
            found.append((row, _EVENTS[measures.RETRIED], tried))
    return _Often(*np.array(found, np.int64).reshape(-1, 3).T)
