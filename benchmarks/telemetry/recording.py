"""What a gateway pays for all series of a request: CPU, memory, and the error of percentiles.

CPU is the process' own, the least of several runs: other work on the machine only adds to it. The
control is a loop that adds a hundred numbers.
"""

from __future__ import annotations

import random
import time
import tracemalloc
from collections.abc import Callable
from math import ceil
from typing import Any

from controlplane.bridge.recorder import _series_parameters
from controlplane.bridge.series import MINUTE_S, SERIES_MAX, Minute
from controlplane.gateway.ports import RequestRecord
from controlplane.kernel.histogram import Histogram
from controlplane.kernel.spans import ABSENT, INDEX, SPANS, pack_spans
from tests.support.records import make_record

SEED = 6
TOKENS = 150
# Requests are added up many at a time: a slow gateway has fewer to share what that costs.
SLOW_PER_S, FAST_PER_S = 20, 200
FLUSH_S = 3
NARROW_EVERY = 10
PASSES = 6
DRAWN = 300
MODELS, POOLS, PROJECTS = 3, 2, 20
RARE = ("arrival", "claim", "assemble", "tools", "safety")
SHARES = (0.5, 0.9, 0.95, 0.99, 0.999)
PARTS = 50
MIB = 1024 * 1024
HUNDRED = 100


def run() -> dict[str, Any]:
    """All figures of recording."""
    dice = random.Random(SEED)
    # Few, over and over: a gateway counts what it has just made, and what lies in a cache.
    drawn = [_request(dice) for _ in range(DRAWN)]
    control_us = _least_us(_adds, 1) / HUNDRED
    slow_us, fast_us = (_recording_us(drawn, per_s) for per_s in (SLOW_PER_S, FAST_PER_S))
    minute = _record(drawn, FAST_PER_S)
    minute.fold_all()
    flush_us = _least_us(lambda: _encode(minute), 1)
    print(f"recording: {slow_us:.1f} us a request of {TOKENS} tokens at {SLOW_PER_S}/s,"
          f" {fast_us:.1f} us at {FAST_PER_S}/s, into {len(minute.sheets)} sheets")  # fmt: skip
    print(f"writing all of a minute's series down: {flush_us / 1000:.1f} ms of CPU")
    print(f"control: {control_us * HUNDRED:.2f} us for {HUNDRED} additions")
    return {
        "record_cpu_us": round(max(slow_us, fast_us), 2),
        "record_fast_cpu_us": round(fast_us, 2),
        "encode_minute_cpu_ms": round(flush_us / 1000, 2),
        "control_100_adds_us": round(control_us * HUNDRED, 2),
        "tokens_per_request": TOKENS,
        "mib_10k_series": round(_memory_mib(dice), 2),
        "max_relative_error": round(_error(dice), 5),
    }


def _least_us(work: Callable[[], object], count: int) -> float:
    least = float("inf")
    for _ in range(PASSES):
        began = time.process_time_ns()
        work()
        least = min(least, time.process_time_ns() - began)
    return least / count / 1000


def _adds() -> int:
    total = 0
    for number in range(HUNDRED):
        total += number
    return total


def _recording_us(drawn: list[RequestRecord], per_s: int) -> float:
    """CPU per request of a minute."""
    records = drawn * (per_s * MINUTE_S // DRAWN)
    return _least_us(lambda: _record(records, per_s), len(records))


def _record(records: list[RequestRecord], per_s: int) -> Minute:
    """As a gateway does."""
    minute = Minute(0)
    for number, record in enumerate(records, 1):
        minute.add(record)
        if number % (per_s * FLUSH_S) == 0:
            narrow = number % (per_s * FLUSH_S * NARROW_EVERY) == 0
            while minute.fold(narrow=narrow):
                pass
    return minute


def _encode(minute: Minute) -> None:
    keys = list(minute.sheets)
    for place in range(0, len(keys), 4):
        _series_parameters(minute, keys[place : place + 4])


def _request(dice: random.Random, **changes: object) -> RequestRecord:
    starts, times = [0] * len(SPANS), [0] * len(SPANS)
    for span in SPANS:
        if span.layer in RARE:
            starts[span.index] = ABSENT
        else:
            times[span.index] = round(dice.lognormvariate(4, 1))
    inside_us = round(dice.lognormvariate(13, 0.5))
    times[INDEX["s5_infer"]], times[INDEX["s5_infer.decode"]] = inside_us, inside_us * 8 // 10
    gap_us = dice.lognormvariate(9, 0.2)
    gaps = [round(gap_us * dice.uniform(0.85, 1.2)) for _ in range(TOKENS - 1)]
    fields: dict[str, object] = {
        "model": f"model-{dice.randrange(MODELS)}",
        "pool": f"pool-{dice.randrange(POOLS)}",
        "project": f"{dice.randrange(PROJECTS):032x}",
        "status": dice.choice([200] * 40 + [429, 503]),
        "prompt_tokens": round(dice.lognormvariate(6.5, 1)),
        "output_tokens": TOKENS,
        "total_us": inside_us + 4_000,
        "ttft_us": round(dice.lognormvariate(11, 0.5)),
        "client_rtt_us": round(dice.lognormvariate(10, 1)),
        "inter_token_us": gaps,
        "spans": pack_spans(starts, times),
    }
    return make_record(**{**fields, **changes})


def _memory_mib(dice: random.Random) -> float:
    """Of a minute that has about as many series as it may, by more models than are planned for."""
    records = [
        _request(dice, model=f"model-{number % 50}", route=f"rule-{number % 9}")
        for number in range(3_000)
    ]
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    minute = Minute(0)
    for record in records:
        minute.add(record)
    minute.fold_all()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    series = sum(sheet.width for sheet in minute.sheets.values())
    print(f"memory: {series} of at most {SERIES_MAX} series in {len(minute.sheets)} sheets")
    return (after - before) / MIB * SERIES_MAX / series


def _error(dice: random.Random) -> float:
    """The worst of merged percentiles beside those of all samples, as a share."""
    worst = 0.0
    for values in (
        [round(dice.lognormvariate(9, 1.5)) + 1 for _ in range(50_000)],
        [round(dice.gauss(*dice.choice([(900, 40), (250_000, 9_000)]))) for _ in range(50_000)],
        [123_457] * 5_000,
    ):
        merged = Histogram()
        for part in range(PARTS):
            histogram = Histogram()
            for value in values[part::PARTS]:
                histogram.record(value)
            merged.add_bytes(histogram.to_bytes())
        ordered = sorted(values)
        for share in SHARES:
            exact = ordered[ceil(share * len(ordered)) - 1]
            worst = max(worst, abs((merged.percentile(share) or 0) / exact - 1))
    return worst
