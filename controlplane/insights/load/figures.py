"""What samples tell, with the definitions of `vllm bench serve`, and what runs tell of each other.

TTFT is from the planned start to the first text; the inter-token latency (ITL) is between events of
a choice from then on, since tokens need not be text; the time per output token (TPOT) is (total -
TTFT) / (output tokens - 1) of each request; the total ends with the last event of a choice. Output
tokens are those of the usage, and are divided by the time from the first start to the last end.
Only answers that are whole count.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from math import inf
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
import numpy as np

from controlplane.insights.load.drive import LoadOutcome
from controlplane.insights.load.samples import LEFT, MS_PER_S, OK, LoadSample, percentile
from controlplane.insights.load.setup import LoadError, LoadSetup

SHARES = (50, 95, 99)
TIMES = ("ttft", "itl", "tpot", "total")
PERCENT = 100
RUNS_MAX = 999
Record = dict[str, Any]


def record_of(setup: LoadSetup, outcome: LoadOutcome) -> Record:
    """All that is kept of a run, as JSON has it; times in milliseconds."""
    samples, seconds = outcome.samples, outcome.seconds
    done = [each for each in samples if each.code == OK]
    late = [(each.sent_s - each.planned_s) * MS_PER_S for each in samples if each.sent_s]
    return {
        "setup": msgspec.to_builtins(setup),
        "loop": setup.loop,
        "seconds": round(seconds, 3),
        "requests": len(samples),
        "answered": len(done),
        "answers_s": round(len(done) / seconds, 3),
        "output_tokens_s": round(sum(each.output_tokens for each in done) / seconds, 2),
        "sent_late_p99_ms": round(percentile(late, 0.99), 3) if late else None,
        "kinds": {kind: _kind([s for s in samples if s.kind == kind]) for kind in setup.kinds},
    }


def times_s(samples: Iterable[LoadSample]) -> dict[str, list[float]]:
    """All times of `TIMES` that whole answers have; those without text have none."""
    told = [each for each in samples if each.code == OK and each.events]
    return {
        "ttft": [each.ttft_s for each in told],
        "itl": list(chain.from_iterable(each.gaps_s for each in told)),
        "tpot": [
            (each.last_s - each.first_s) / (each.output_tokens - 1)
            for each in told
            if each.output_tokens > 1
        ],
        "total": [each.total_s for each in told],
    }


def _kind(samples: Sequence[LoadSample]) -> Record:
    done = [each for each in samples if each.code == OK]
    counts = ("prompt_tokens", "cached_tokens", "output_tokens", "events")
    slowest = max(done, key=lambda each: each.total_s, default=None)
    return {
        "requests": len(samples),
        "answers": dict(Counter(each.code for each in samples).most_common()),
        "messages": {each.code: each.message for each in samples if each.message},
        "slowest": slowest.request if slowest else "",
        **{name: sum(getattr(each, name) for each in done) for name in counts},
        "times_ms": {name: _spread_of(all_s) for name, all_s in times_s(done).items() if all_s},
    }


def _spread_of(values_s: list[float]) -> Record:
    values = np.array(values_s) * MS_PER_S
    curve = np.percentile(values, range(PERCENT + 1)).round(3).tolist()
    named = {f"p{share}": curve[share] for share in SHARES}
    return {"count": len(values), "mean": float(values.mean()), **named, "curve": curve}


def keep(folder: Path, label: str, record: Record) -> Path:
    """Write a run beside earlier ones of its label. Raises LoadError where nothing can be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(1, RUNS_MAX + 1):
            path = folder / f"{label}-{number:03}.json"
            if not path.exists():
                path.write_bytes(msgspec.json.format(msgspec.json.encode(record), indent=1))
                return path
    except OSError as error:
        raise LoadError(f"--folder: {error}") from error
    raise LoadError(f"--label: {label} has {RUNS_MAX} runs already; take another.")


def kept(folder: Path, label: str) -> list[Record]:
    """All runs of a label. Raises LoadError without any."""
    paths = sorted(folder.glob(f"{label}-[0-9][0-9][0-9].json"))
    try:
        found = [msgspec.json.decode(path.read_bytes(), type=Record) for path in paths]
    except (OSError, msgspec.MsgspecError) as error:
        raise LoadError(f"{folder}: {error}") from error
    if not found:
        raise LoadError(f"{label}: no runs of this label are in {folder}.")
    return found


def compare(before: Sequence[Record], after: Sequence[Record]) -> dict[str, list[float]]:
    """Of each figure that all runs of both have: medians of both, their ratio, and the least and
    most ratio that any pair of runs would give.
    """
    one, other = [_flat(each) for each in before], [_flat(each) for each in after]
    names = [name for name in one[0] if all(name in each for each in (*one, *other))]
    found = {}
    for name in names:
        old, new = ([each[name] for each in side] for side in (one, other))
        pairs = (median(new), median(old)), (min(new), max(old)), (max(new), min(old))
        found[name] = [median(old), median(new), *(_quotient(*pair) for pair in pairs)]
    return found


def _flat(record: Record) -> Mapping[str, float]:
    """Every figure that is compared, by its name."""
    found = {"output tokens/s": record["output_tokens_s"], "answers/s": record["answers_s"]}
    for kind, row in record["kinds"].items():
        well = sum(row["answers"].get(code, 0) for code in (OK, LEFT))
        found[f"{kind} failed %"] = PERCENT * (1 - well / row["requests"]) if row["requests"] else 0
        for name, times in row["times_ms"].items():
            found |= {f"{kind} {name} p{share} ms": times[f"p{share}"] for share in SHARES}
    return found


def _quotient(value: float, base: float) -> float:
    if value == base:
        return 1.0
    return value / base if base else inf


def differences(before: Sequence[Record], after: Sequence[Record]) -> list[str]:
    """Names of what was not set alike in all runs."""
    setups = [each["setup"] for each in (*before, *after)]
    return [name for name in setups[0] if any(each[name] != setups[0][name] for each in setups)]
