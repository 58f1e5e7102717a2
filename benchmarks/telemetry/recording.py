"""What a gateway pays for all series of a request: CPU, memory, and the error of percentiles.

CPU is the process' own, the median of several passes, which take turns with the control: a loop
that adds a hundred numbers. Memory is that of as many series as are wanted, made and counted.
"""

from __future__ import annotations

import random
import time
import tracemalloc
from collections.abc import Callable
from math import ceil
from typing import Any

from benchmarks.recorder import Recorder
from controlplane.bridge.record.recorder import _series_parameters
from controlplane.bridge.record.series import MINUTE_S, SERIES_MAX, Minute, SeriesKey
from controlplane.gateway.ports import FinishedRequest
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
SERIES_LEAST = 9_900
MODELS_MANY = 500


def run(recorder: Recorder) -> dict[str, Any]:
    """All figures of recording."""
    dice = random.Random(SEED)
    # Few, over and over: a gateway counts what it has just made, and what lies in a cache.
    drawn = [_request(dice) for _ in range(DRAWN)]
    minute = _record(drawn, FAST_PER_S)
    minute.fold_all()
    for _ in range(PASSES):
        recorder.keep("recording", {
            "record_cpu_us": _recording_us(drawn, SLOW_PER_S),
            "record_fast_cpu_us": _recording_us(drawn, FAST_PER_S),
            "encode_minute_cpu_ms": _cpu_us(lambda: _encode(minute)) / 1000,
            "control_100_adds_us": _cpu_us(lambda: [_adds() for _ in range(HUNDRED)]) / HUNDRED,
        })  # fmt: skip
    found = recorder.medians("recording", 2)
    each = {key: found[f"record_{key}cpu_us"] for key in ("", "fast_")}
    print(
        f"recording: {each['']} us a request of {TOKENS} tokens at {SLOW_PER_S}/s,"
        f" {each['fast_']} us at {FAST_PER_S}/s, into {len(minute.sheets)} sheets"
    )
    print(f"writing all of a minute's series down: {found['encode_minute_cpu_ms']} ms of CPU")
    print(f"control: {found['control_100_adds_us']} us for {HUNDRED} additions")
    return {
        **found,
        "tokens_per_request": TOKENS,
        **_memory(dice),
        "max_relative_error": round(_error(dice), 5),
    }


def _cpu_us(work: Callable[[], object]) -> float:
    began = time.process_time_ns()
    work()
    return (time.process_time_ns() - began) / 1000


def _adds() -> int:
    total = 0
    for number in range(HUNDRED):
        total += number
    return total


def _recording_us(drawn: list[FinishedRequest], per_s: int) -> float:
    """CPU per request of a minute."""
    records = drawn * (per_s * MINUTE_S // DRAWN)
    return _cpu_us(lambda: _record(records, per_s)) / len(records)


def _record(records: list[FinishedRequest], per_s: int) -> Minute:
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
        _series_parameters(minute, keys[place : place + 4], _unencodable)


def _unencodable(key: SeriesKey, error: Exception) -> None:
    raise error


def _request(dice: random.Random, **changes: object) -> FinishedRequest:
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


def _memory(dice: random.Random) -> dict[str, Any]:
    """MiB of a minute that is full, by more models than are planned for: as near to 10,000 series
    as whole sheets come. How many that were stands beside the figure.
    """
    records = [
        _request(dice, model=f"model-{number % MODELS_MANY}", route=f"rule-{number % 9}")
        for number in range(3_000)
    ]
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    minute, series = Minute(0), 0
    for number, record in enumerate(records):
        minute.add(record)
        if number % 9 == 0 and (series := _series(minute)) >= SERIES_LEAST:
            break
    minute.fold_all()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    series = _series(minute)
    print(f"memory: {series} series (at most {SERIES_MAX}) in {len(minute.sheets)} sheets")
    if series < SERIES_LEAST:
        why = f"a minute held {series} series at most"
        return {"mib_10k_series": None, "why_mib_10k_series": why, "series": series}
    return {"mib_10k_series": round((after - before) / MIB, 2), "series": series}


def _series(minute: Minute) -> int:
    return sum(sheet.width for sheet in minute.sheets.values())


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
