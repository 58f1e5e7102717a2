"""What samples tell, with the definitions of `vllm bench serve`, and what runs tell of each other.

TTFT is from the planned start to the first text; the inter-token latency (ITL) is between events
with text; the time per output token (TPOT) is (total - TTFT) / (output tokens - 1) of each request;
the total ends with the last event of a choice. Output tokens are those of the usage, and are
divided by the time from the first start to the last end. Only answers that are whole count.
"""

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from math import inf
from pathlib import Path
from typing import Any

import msgspec
from django.core.management.base import CommandError

from controlplane.insights.load.answers import LEFT, OK, LoadSample
from controlplane.insights.load.drive import LoadOutcome
from controlplane.insights.load.setup import LoadSetup

MS_PER_S = 1_000.0
SHARES = (50, 95, 99)
TIMES = ("ttft", "itl", "tpot", "total")
PERCENT = 100
RUNS_MAX = 999
Record = dict[str, Any]


def percentile(ordered: Sequence[float], share: float) -> float:
    """Interpolated between ranks, as NumPy does; of ordered values, at least one."""
    place = (len(ordered) - 1) * share / PERCENT
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def record_of(setup: LoadSetup, outcome: LoadOutcome) -> Record:
    """All that is kept of a run, as JSON has it; times in milliseconds."""
    samples = outcome.samples
    sent = [each for each in samples if each.sent_s]
    late = sorted((each.sent_s - each.planned_s) * MS_PER_S for each in sent)
    done = [each for each in samples if each.code == OK]
    seconds = outcome.seconds
    return {
        "setup": msgspec.to_builtins(setup),
        "loop": setup.loop,
        "seconds": round(seconds, 3),
        "requests": len(samples),
        "answered": len(done),
        "answers_s": round(len(done) / seconds, 3),
        "output_tokens_s": round(sum(each.output_tokens for each in done) / seconds, 2),
        "sent_late_p99_ms": round(percentile(late, 99), 3) if late else None,
        "kinds": {kind: _kind(samples, kind) for kind in setup.kinds},
    }


def _kind(samples: Iterable[LoadSample], kind: str) -> Record:
    mine = [each for each in samples if each.kind == kind]
    done = [each for each in mine if each.code == OK]
    told = [each for each in done if each.events]
    times = {
        "ttft": [each.first_s - each.planned_s for each in told],
        "itl": list(chain.from_iterable(each.gaps_s for each in told)),
        "tpot": [
            (each.last_s - each.first_s) / (each.output_tokens - 1)
            for each in told
            if each.output_tokens > 1
        ],
        "total": [each.last_s - each.planned_s for each in told],
    }
    return {
        "requests": len(mine),
        "answers": dict(Counter(each.code for each in mine).most_common()),
        "messages": {each.code: each.message for each in mine if each.message},
        "prompt_tokens": sum(each.prompt_tokens for each in done),
        "cached_tokens": sum(each.cached_tokens for each in done),
        "output_tokens": sum(each.output_tokens for each in done),
        "events": sum(each.events for each in done),
        "times_ms": {name: _spread_of(values) for name, values in times.items() if values},
    }


def _spread_of(values: list[float]) -> Record:
    ordered = sorted(value * MS_PER_S for value in values)
    curve = [round(percentile(ordered, share), 3) for share in range(PERCENT + 1)]
    named = {f"p{share}": curve[share] for share in SHARES}
    return {"count": len(ordered), "mean": statistics.fmean(ordered), **named, "curve": curve}


def keep(folder: Path, label: str, record: Record) -> Path:
    """Write a run beside earlier ones of its label. Raises CommandError where nothing can be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(1, RUNS_MAX + 1):
            path = folder / f"{label}-{number:03}.json"
            if not path.exists():
                path.write_bytes(msgspec.json.format(msgspec.json.encode(record), indent=1))
                return path
    except OSError as error:
        raise CommandError(f"--folder: {error}") from error
    raise CommandError(f"--label: {label} has {RUNS_MAX} runs already; take another.")


def kept(folder: Path, label: str) -> list[Record]:
    """All runs of a label. Raises CommandError without any."""
    paths = sorted(folder.glob(f"{label}-[0-9][0-9][0-9].json"))
    try:
        found = [msgspec.json.decode(path.read_bytes(), type=Record) for path in paths]
    except (OSError, msgspec.MsgspecError) as error:
        raise CommandError(f"{folder}: {error}") from error
    if not found:
        raise CommandError(f"{label}: no runs of this label are in {folder}.")
    return found


class LoadRatio(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of two labels: medians of the runs, their ratio, and the least and most that any
    pair of runs would give.
    """

    name: str
    before: float
    after: float
    least: float
    most: float

    @property
    def ratio(self) -> float:
        return _quotient(self.after, self.before)

    @property
    def differs(self) -> bool:
        """Whether every pair of runs says the same: more, or less."""
        return not self.least <= 1 <= self.most


def flat(record: Record) -> dict[str, float]:
    """Every figure that is compared, by its name."""
    found = {
        "output tokens/s": record["output_tokens_s"],
        "answers/s": record["answers_s"],
    }
    for kind, row in record["kinds"].items():
        well = sum(row["answers"].get(code, 0) for code in (OK, LEFT))
        found[f"{kind} failed %"] = PERCENT * (1 - well / row["requests"]) if row["requests"] else 0
        for name, times in row["times_ms"].items():
            found |= {f"{kind} {name} p{share} ms": times[f"p{share}"] for share in SHARES}
    return found


def compare(before: Sequence[Record], after: Sequence[Record]) -> list[LoadRatio]:
    """Figures that all runs of both have."""
    one, other = [flat(each) for each in before], [flat(each) for each in after]
    names = [name for name in one[0] if all(name in each for each in (*one, *other))]
    return [_ratio(name, one, other) for name in names]


def _ratio(
    name: str, before: Sequence[Mapping[str, float]], after: Sequence[Mapping[str, float]]
) -> LoadRatio:
    one, other = [each[name] for each in before], [each[name] for each in after]
    return LoadRatio(
        name=name,
        before=statistics.median(one),
        after=statistics.median(other),
        least=_quotient(min(other), max(one)),
        most=_quotient(max(other), min(one)),
    )


def _quotient(value: float, base: float) -> float:
    if value == base:
        return 1.0
    return value / base if base else inf


def differences(before: Sequence[Record], after: Sequence[Record]) -> list[str]:
    """Names of what was not set alike in all runs."""
    setups = [each["setup"] for each in (*before, *after)]
    return [name for name in setups[0] if any(each[name] != setups[0][name] for each in setups)]
