"""What a gateway has counted since it started, for Prometheus: sums that only grow.

Minutes of series are added when they are forgotten and, at a scrape, as far as they have come, so a
request pays for two small counts here and nothing else. Labels are bounded: names beyond the
bounds are counted under `other`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable

from controlplane.bridge.series import EVERYONE, OTHER, SAMPLED, Minute, measures_of
from controlplane.gateway.ports import RequestRecord
from controlplane.kernel.histogram import BUCKETS_PER_OCTAVE, Histogram
from controlplane.kernel.spans import STAGES
from controlplane.kernel.statuses import CLIENT_LEFT, FAILED_FROM

MODELS_MAX = 16
ROUTES_MAX = 24
CODES_MAX = 64
# Those of OpenTelemetry's conventions for generative models, in seconds and tokens.
DURATION_BOUNDS = (
    0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92,
)  # fmt: skip
FIRST_TOKEN_BOUNDS = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
)  # fmt: skip
PER_TOKEN_BOUNDS = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5,
)  # fmt: skip
TOKEN_BOUNDS = tuple(4**power for power in range(14))
# Ours: stages outside inference take microseconds, inference seconds.
STAGE_BOUNDS = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0,
    10.0, 30.0,
)  # fmt: skip
US_PER_S = 1_000_000
_INDEX_MAX = 48 * BUCKETS_PER_OCTAVE
_STAGES = tuple(name for name, _, _ in STAGES)
PHASES = ("queue", "prefill", "decode", "network")


def _from_us(us: float) -> float:
    return us / US_PER_S


def _from_rate(milli_tokens_per_s: float) -> float:
    return 1_000 / milli_tokens_per_s


class Spread:
    """How the buckets of our histograms fall into classic ones.

    A value less than 1.1 % away from a bound may be counted on its other side; counts and, but for
    converted values, sums are exact.
    """

    def __init__(self, bounds: Iterable[float], seconds: Callable[[float], float]) -> None:
        self.bounds = tuple(bounds)
        self.converts = seconds is not _from_us
        self.middles = [
            seconds(2.0 ** ((index - 0.5) / BUCKETS_PER_OCTAVE)) for index in range(_INDEX_MAX)
        ]
        self.places = [bisect_left(self.bounds, middle) for middle in self.middles]


STAGE = Spread(STAGE_BOUNDS, _from_us)
SPREADS = {
    **dict.fromkeys((*_STAGES, *PHASES, "overhead"), STAGE),
    "total": Spread(DURATION_BOUNDS, _from_us),
    "ttft": Spread(FIRST_TOKEN_BOUNDS, _from_us),
    "inter_token": Spread(PER_TOKEN_BOUNDS, _from_us),
    "tokens_per_s": Spread(PER_TOKEN_BOUNDS, _from_rate),
}


class Latency:
    """One classic histogram in the making."""

    __slots__ = ("counts", "seconds", "spread")

    def __init__(self, spread: Spread) -> None:
        self.spread = spread
        self.counts = [0] * (len(spread.bounds) + 1)
        self.seconds = 0.0

    def add(self, histogram: Histogram) -> None:
        """Add all values of one of our histograms."""
        counts, places = self.counts, self.spread.places
        counts[0] += histogram.zeros
        for index, count in histogram.buckets.items():
            counts[places[min(index, _INDEX_MAX - 1)]] += count
        if self.spread.converts:
            # Times of rates: their sum is not the inverse of the rates' sum.
            middles = self.spread.middles
            self.seconds += sum(
                middles[min(index, _INDEX_MAX - 1)] * count
                for index, count in histogram.buckets.items()
            )
        else:
            self.seconds += histogram.total / US_PER_S


class Names:
    """The first so many names; whatever comes later is `other`, and counted."""

    def __init__(self, most: int) -> None:
        self.folded = 0
        self._most = most
        self._known: set[str] = set()

    def see(self, name: str) -> str:
        """The label of a name that has come up just now."""
        if name and name not in self._known:
            if len(self._known) >= self._most:
                self.folded += 1
                return OTHER
            self._known.add(name)
        return name or OTHER

    def of(self, name: str) -> str:
        """The label of a name, whether or not it has come up."""
        return name if name in self._known else OTHER


class TokenCounts:
    """How many tokens requests of one model had, as two classic histograms."""

    __slots__ = ("prompt", "prompt_total", "output", "output_total")

    def __init__(self) -> None:
        self.prompt = [0] * (len(TOKEN_BOUNDS) + 1)
        self.output = [0] * (len(TOKEN_BOUNDS) + 1)
        self.prompt_total = self.output_total = 0


class Sums:
    """Requests by (model, route, class of status), usage by (model, route), latencies by measure
    and model (of whole requests by class of status, too).
    """

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str, int]] = Counter()
        self.usage: dict[tuple[str, str], list[int]] = {}
        self.latencies: dict[tuple[str, str, int], Latency] = {}

    def latency(self, measure: str, model: str, status: int = 0) -> Latency:
        """The histogram of a label set, made where it is missing."""
        found = self.latencies.get((measure, model, status))
        if found is None:
            found = self.latencies[measure, model, status] = Latency(SPREADS[measure])
        return found

    def add(self, other: Sums) -> None:
        """Add all of another's counts."""
        self.requests.update(other.requests)
        for key, counts in other.usage.items():
            self.add_usage(key, counts)
        for (measure, model, status), theirs in other.latencies.items():
            mine = self.latency(measure, model, status)
            mine.counts = [a + b for a, b in zip(mine.counts, theirs.counts, strict=True)]
            mine.seconds += theirs.seconds

    def add_usage(self, key: tuple[str, str], counts: list[int]) -> None:
        """Add one row of usage."""
        mine = self.usage.get(key)
        self.usage[key] = (
            [a + b for a, b in zip(mine, counts, strict=True)] if mine else list(counts)
        )


class Totals:
    """The book that a recorder keeps for `/metrics`."""

    def __init__(self) -> None:
        self.models = Names(MODELS_MAX)
        self.routes = Names(ROUTES_MAX)
        self.codes = Names(CODES_MAX)
        self.tokens: dict[str, TokenCounts] = {}
        self.finishes: Counter[tuple[str, str]] = Counter()
        self.refusals: Counter[tuple[str, str]] = Counter()
        self.cancels: Counter[str] = Counter()
        self._past = Sums()

    @property
    def folded(self) -> int:
        """Requests that are counted under `other`, since there were too many names."""
        return self.models.folded + self.routes.folded + self.codes.folded

    def count(self, record: RequestRecord) -> None:
        """What no series holds of a request: tokens by number, finish reason, error code."""
        model = self.models.see(record.model)
        self.routes.see(record.route)
        if record.status == CLIENT_LEFT:
            self.cancels[model] += 1
        elif record.status >= FAILED_FROM:
            self.refusals[model, self.codes.see(record.error_code)] += 1
        if record.finish:
            self.finishes[model, self.codes.see(record.finish)] += 1
        if not record.prompt_tokens and not record.output_tokens:
            return
        tokens = self.tokens.get(model)
        if tokens is None:
            tokens = self.tokens[model] = TokenCounts()
        tokens.prompt[bisect_left(TOKEN_BOUNDS, record.prompt_tokens)] += 1
        tokens.output[bisect_left(TOKEN_BOUNDS, record.output_tokens)] += 1
        tokens.prompt_total += record.prompt_tokens
        tokens.output_total += record.output_tokens

    def retire(self, minute: Minute) -> None:
        """A minute is over and will be forgotten."""
        self._read(minute, self._past)

    def sums(self, minutes: Iterable[Minute]) -> Sums:
        """All until now, with the minutes that are still kept."""
        now = Sums()
        now.add(self._past)
        for minute in minutes:
            self._read(minute, now)
        return now

    def _read(self, minute: Minute, into: Sums) -> None:
        for key, group in minute.groups.items():
            if key[1] != EVERYONE or key[-1] == SAMPLED:
                continue
            model, route, status = self.models.of(key[2]), self.routes.of(key[3]), key[-1]
            for measure, histogram in zip(measures_of(key), group, strict=True):
                if measure == "total":
                    into.requests[model, route, status] += histogram.count
                    into.latency(measure, model, status).add(histogram)
                elif measure in SPREADS and (histogram.buckets or histogram.zeros):
                    into.latency(measure, model).add(histogram)
        for owner, counts in minute.usage.items():
            into.add_usage((self.models.of(owner[3]), self.routes.of(owner[4])), counts)
