"""Why one request took as long as it did: its layers beside the hour's medians, and the likeliest
causes in words with their evidence. Pure arithmetic over facts; nothing is guessed by a model.

A cause explains the time that a layer took beyond its median. Decoding is looked at twice: how
long a token took, and how many there were.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from controlplane.kernel.histogram import Histogram
from controlplane.kernel.measures import GATEWAY_WAIT, LAYERS, PHASES
from frontend.shared import formats
from frontend.shared.stages import LABELS

CAUSES_MAX = 3
# A layer is out of the ordinary at so many times its median, if that explains so much of the total.
TIMES_LEAST = 2.0
SHARE_LEAST = 0.05
EXCESS_US_LEAST = 1_000
# Of fewer requests a median is none to compare with.
COUNT_LEAST = 20
BUSY_PERMILLE = 900
RATE, TOTAL, UNATTRIBUTED = "tokens_per_s", "total", "unattributed"
# A rate is in thousandths of tokens a second: this over it is microseconds a token.
RATE_US = 1_000_000_000
LONG = "length"
PER_CENT = 100.0
MEASURE_OF = {**PHASES, GATEWAY_WAIT: GATEWAY_WAIT, **{name: name for name in LAYERS}}
WORDS = {
    GATEWAY_WAIT: "Waiting for a node with room",
    "s5_infer.network": "The network to the node and back",
    "s5_infer.queue": "Waiting on the node",
    "s5_infer.prefill": "Prefill",
    "s6_finish.write": "Writing to the client",
    "s1_admission.body": "Reading the body",
    "s1_admission.arrival": "The time before the gateway",
    "s1_admission.limits": "Checking the limits",
    "s1_admission.hold": "Holding the maximum cost",
    "s3_tokenize.encode": "Encoding the prompt",
    "s6_finish.safety": "Checking the answer for safety",
    "s7_bill.settle": "Recording the charge",
    UNATTRIBUTED: "Time outside every layer",
}
REASONS = {
    "s6_finish.write": "the client or its network read slowly",
    "s1_admission.body": "the client or its network sent slowly",
    "s1_admission.arrival": "the proxy in front of the gateway held it",
    "s1_admission.limits": "Redis, which counts limits, answered late",
    "s1_admission.hold": "PostgreSQL, which keeps holds, answered late",
    "s7_bill.settle": "PostgreSQL, which keeps charges, answered late",
    UNATTRIBUTED: "the gateway process was busy with other requests",
}


@dataclass(frozen=True)
class Usual:
    """A time beside those of the same hour: their median, and the share that were shorter."""

    us: float
    median_us: float
    below: float
    count: int

    @property
    def times(self) -> float | None:
        return self.us / self.median_us if self.median_us > 0 else None

    @property
    def percentile(self) -> str:
        """Its rank among the hour's, rounded down, so that none but the longest is called so."""
        if self.below >= 1:
            return "longest"
        tenths = int(PER_CENT * 10 * self.below)
        return f"p{tenths / 10:g}" if tenths >= 990 else f"p{tenths // 10}"

    @property
    def few(self) -> bool:
        return self.count < COUNT_LEAST


@dataclass(frozen=True, kw_only=True)
class CauseFacts:
    """What is known: times by span beside the usual ones, and what the request and its node were
    like. None is unknown; `sharers` are other requests on the node at the same time.
    """

    total_us: int
    usual: Mapping[str, Usual]
    gap: Usual | None = None
    output_tokens: int = 0
    uncached_tokens: int = 0
    miss: str = ""
    position: int | None = None
    node: str = ""
    running: int | None = None
    cpu_permille: int | None = None
    kv_permille: int | None = None
    sharers: int | None = None
    failed_nodes: int = 0


@dataclass(frozen=True)
class Cause:
    """`us` is the time that it explains; the sentence carries the evidence."""

    name: str
    us: float
    sentence: str


@dataclass(frozen=True)
class Explained:
    """The likeliest causes, the most time first; `note` stands where there are none."""

    causes: list[Cause] = field(default_factory=list)
    note: str = ""


def compare(series: Mapping[str, Histogram], times: Mapping[str, int | None]) -> dict[str, Usual]:
    """Times by measure beside the hour's histograms; those that did not run have none."""
    found = {}
    for measure, us in times.items():
        histogram = series.get(measure)
        median = None if histogram is None else histogram.percentile(0.5)
        if us is None or histogram is None or median is None:
            continue
        below = histogram.share_below(us) or 0.0
        if us and us >= histogram.maximum and histogram.count > 1:
            below = 1.0
        found[measure] = Usual(us, median, below, histogram.count)
    return found


def pace(
    series: Mapping[str, Histogram], decode_us: int | None, output_tokens: int
) -> Usual | None:
    """Microseconds a token beside those of the hour's requests; None where that is unknown."""
    rates, passes = series.get(RATE), output_tokens - 1
    median = None if rates is None else rates.percentile(0.5)
    if not decode_us or passes < 1 or rates is None or not median:
        return None
    faster = rates.share_below(RATE_US * passes / decode_us) or 0.0
    return Usual(decode_us / passes, RATE_US / median, 1 - faster, rates.count)


def likeliest(facts: CauseFacts) -> Explained:
    """The causes that explain the most time, at most `CAUSES_MAX`; "nothing unusual" is one."""
    total = facts.usual.get(TOTAL)
    if total is None or total.few:
        known = 0 if total is None else total.count
        return Explained(note=f"Too few requests in that hour to compare with: {known}.")
    least_us = max(EXCESS_US_LEAST, SHARE_LEAST * facts.total_us)
    causes = [one for one in _causes(facts) if one.us >= least_us]
    causes.sort(key=lambda one: (-one.us, one.name))
    if not causes:
        return Explained(note=_nothing(total))
    return Explained(causes[:CAUSES_MAX])


def _nothing(total: Usual) -> str:
    return (
        f"Nothing unusual: no layer took {TIMES_LEAST:g} × its median of that hour"
        f" ({formats.duration(total.us)} in all, where the median is"
        f" {formats.duration(total.median_us)})."
    )


def _causes(facts: CauseFacts) -> Iterator[Cause]:
    yield from _decode(facts)
    for name in (*MEASURE_OF, UNATTRIBUTED):
        usual = facts.usual.get(MEASURE_OF.get(name, name))
        if usual is None or usual.few or name == "s5_infer.decode" or not _out(usual):
            continue
        told = "; ".join(filter(None, (REASONS.get(name, ""), *_evidence(name, facts))))
        stage, _, layer = name.partition(".")
        words = WORDS.get(name) or f"Layer “{layer}” of {LABELS.get(stage, stage)}"
        sentence = f"{words} took {_beside(usual)}{told and ': '}{told}."
        yield Cause(name, usual.us - usual.median_us, sentence)


def _decode(facts: CauseFacts) -> Iterator[Cause]:
    whole, gap = facts.usual.get("decode"), facts.gap
    passes = facts.output_tokens - 1
    if gap is not None and not gap.few and passes > 0 and _out(gap):
        told = ", ".join(_load(facts))
        sentence = (
            f"Decode took {formats.duration(gap.us)} a token, {_times(gap)}{told and ': '}{told}."
        )
        yield Cause("s5_infer.decode", (gap.us - gap.median_us) * passes, sentence)
        return
    if whole is not None and not whole.few and _out(whole):
        pace = f", {formats.duration(gap.us)} each as usual" if gap is not None else ""
        sentence = (
            f"A long answer: {facts.output_tokens:,} tokens{pace}. Decode took {_beside(whole)}."
        )
        yield Cause(LONG, whole.us - whole.median_us, sentence)


def _evidence(name: str, facts: CauseFacts) -> Iterator[str]:
    if name == "s5_infer.prefill":
        yield f"{facts.uncached_tokens:,} prompt tokens were not cached"
        yield facts.miss.rstrip(".")
    if name == GATEWAY_WAIT and facts.position:
        yield f"{facts.position:,} {_plural('request', facts.position)} waited before it"
    if name == GATEWAY_WAIT and facts.failed_nodes:
        yield f"{facts.failed_nodes} {_plural('node', facts.failed_nodes)} did not finish it"
    if name in ("s5_infer.prefill", "s5_infer.queue", "s5_infer.network"):
        yield ", ".join(_load(facts))


def _load(facts: CauseFacts) -> Iterator[str]:
    node = facts.node or "its node"
    if facts.cpu_permille is not None:
        yield f"{node} was at {facts.cpu_permille / 10:.0f} % CPU"
    if facts.running is not None:
        yield f"with {facts.running} {_plural('sequence', facts.running)} in its batch"
    elif facts.sharers:
        verb = "were" if facts.sharers > 1 else "was"
        yield f"{facts.sharers:,} other {_plural('request', facts.sharers)} {verb} on {node}"
    if facts.kv_permille is not None and facts.kv_permille >= BUSY_PERMILLE:
        yield f"its KV cache {facts.kv_permille / 10:.0f} % full"


def _out(usual: Usual) -> bool:
    return usual.us >= TIMES_LEAST * usual.median_us


def _beside(usual: Usual) -> str:
    return f"{formats.duration(usual.us)}, {_times(usual)}"


def _times(usual: Usual) -> str:
    median = f"the hour's median of {formats.duration(usual.median_us)}"
    return (
        f"{formats.significant(usual.times, 2)} × {median}" if usual.times else f"against {median}"
    )


def _plural(word: str, count: int) -> str:
    return word if count == 1 else f"{word}s"
