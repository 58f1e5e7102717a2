"""A canary against the rules in force: four figures of both arms, and what may be said of them.

Pure. A figure is called better or worse only beyond three standard deviations, since it is looked
at again and again, and only where the difference is large enough to matter.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import ceil, exp, lgamma, log, sqrt
from statistics import fmean, variance

REQUESTS_MIN = 100
SIGMAS = 3.0
# One side of a normal distribution beyond three standard deviations.
CHANCE_MAX = 0.00135
LATENCY_SHARE_MIN = 0.05
MEAN_SHARE_MIN = 0.01


class CanaryVerdict(StrEnum):
    """What may be said; `EARLY` is not enough yet, `OTHER` differs without being good or bad."""

    BETTER = "better"
    SAME = "same"
    WORSE = "worse"
    OTHER = "other"
    EARLY = "not enough data yet"


# Of several the first here is what they say together.
TELLING = (CanaryVerdict.WORSE, CanaryVerdict.EARLY, CanaryVerdict.BETTER)


@dataclass
class Arm:
    """Figures of the requests of one arm: microseconds, nano-USD and tokens of those served."""

    requests: int = 0
    errors: int = 0
    ttft_us: list[int] = field(default_factory=list, repr=False)
    cost_nano: list[int] = field(default_factory=list, repr=False)
    output_tokens: list[int] = field(default_factory=list, repr=False)


@dataclass(frozen=True)
class CanaryFigure:
    """One figure of both arms; `counts` are the values behind each, None where there are none."""

    figure: str
    control: float | None
    trial: float | None
    counts: tuple[int, int]
    verdict: CanaryVerdict


@dataclass(frozen=True)
class CanaryComparison:
    """All figures, and what they say together with the sentences that say why."""

    verdict: CanaryVerdict
    reasons: tuple[str, ...]
    findings: tuple[CanaryFigure, ...]


def judge(control: Arm, trial: Arm) -> CanaryComparison:
    """Compare the arms; worse in one figure is worse, whatever the others say."""
    findings = (
        _errors(control, trial),
        _latency("ttft_p50", control, trial, 0.5),
        _latency("ttft_p95", control, trial, 0.95),
        _mean("cost", control.cost_nano, trial.cost_nano, lower_is_better=True),
        _mean("output_tokens", control.output_tokens, trial.output_tokens, lower_is_better=False),
    )
    said = [each.verdict for each in findings]
    verdict = next((each for each in TELLING if each in said), CanaryVerdict.SAME)
    apart = [each for each in findings if each.verdict != CanaryVerdict.SAME]
    told = tuple(f"{each.figure}: {each.verdict.value}" for each in apart)
    return CanaryComparison(verdict, told, findings)


def chance(total: int, of_trial: int, share: float) -> float:
    """Probability that at least `of_trial` of `total` fall to an arm that gets `share` of all."""
    if of_trial <= 0:
        return 1.0
    terms = (
        exp(
            lgamma(total + 1)
            - lgamma(count + 1)
            - lgamma(total - count + 1)
            + count * log(share)
            + (total - count) * log(1 - share)
        )
        for count in range(of_trial, total + 1)
    )
    return min(1.0, sum(terms))


def _errors(control: Arm, trial: Arm) -> CanaryFigure:
    rates = _rate(control.errors, control.requests), _rate(trial.errors, trial.requests)
    verdict = CanaryVerdict.EARLY
    if min(control.requests, trial.requests) >= REQUESTS_MIN:
        verdict = _leaning((control.errors, control.requests), (trial.errors, trial.requests))
    return CanaryFigure("errors", *rates, (control.requests, trial.requests), verdict)


def _latency(figure: str, control: Arm, trial: Arm, share: float) -> CanaryFigure:
    """Held against the percentile of both arms together: in which arm are more above it?"""
    old, new = sorted(control.ttft_us), sorted(trial.ttft_us)
    values = _percentile(old, share), _percentile(new, share)
    counts = len(old), len(new)
    if min(counts) < REQUESTS_MIN or values[0] is None or values[1] is None:
        return CanaryFigure(figure, *values, counts, _too_few(counts))
    edge = _percentile(sorted(old + new), share) or 0.0
    verdict = CanaryVerdict.SAME
    if abs(values[1] - values[0]) >= LATENCY_SHARE_MIN * values[0]:
        above = [sum(value > edge for value in each) for each in (old, new)]
        verdict = _leaning((above[0], counts[0]), (above[1], counts[1]))
    return CanaryFigure(figure, *values, counts, verdict)


def _mean(
    figure: str, control: Sequence[int], trial: Sequence[int], *, lower_is_better: bool
) -> CanaryFigure:
    counts = len(control), len(trial)
    values = tuple(fmean(each) if each else None for each in (control, trial))
    old, new = values
    if min(counts) < REQUESTS_MIN or old is None or new is None:
        return CanaryFigure(figure, old, new, counts, _too_few(counts))
    spread = sqrt(variance(control) / counts[0] + variance(trial) / counts[1])
    verdict = CanaryVerdict.SAME
    if abs(new - old) > SIGMAS * spread and abs(new - old) >= MEAN_SHARE_MIN * abs(old):
        better = CanaryVerdict.BETTER if new < old else CanaryVerdict.WORSE
        verdict = better if lower_is_better else CanaryVerdict.OTHER
    return CanaryFigure(figure, old, new, counts, verdict)


def _too_few(counts: tuple[int, int]) -> CanaryVerdict:
    # Requests that embed have no first token at all: nothing is to be waited for then.
    return CanaryVerdict.EARLY if any(counts) else CanaryVerdict.SAME


def _leaning(control: tuple[int, int], trial: tuple[int, int]) -> CanaryVerdict:
    """Whether bad ones of all fall to one arm more often than chance would have it."""
    total, everyone = control[0] + trial[0], control[1] + trial[1]
    if chance(total, trial[0], trial[1] / everyone) < CHANCE_MAX:
        return CanaryVerdict.WORSE
    if chance(total, control[0], control[1] / everyone) < CHANCE_MAX:
        return CanaryVerdict.BETTER
    return CanaryVerdict.SAME


def _rate(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _percentile(values: Sequence[int], share: float) -> float | None:
    return float(values[max(0, ceil(share * len(values)) - 1)]) if values else None
