"""Routing rules in words: when a rule applies, where it leads, and what else it decides; and
figures of a canary, ready to be read.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from controlplane.kernel.money import usd_short
from controlplane.kernel.rules import (
    PRIORITY_HIGH,
    PRIORITY_LOW,
    PRIORITY_NORMAL,
    Match,
    RouteRule,
    Step,
)
from controlplane.routing.canary import CanaryFigure, CanaryVerdict
from frontend.shared.formats import MISSING, count, duration, percent, significant

# Conditions that are sets of values, and what they are compared with.
_CONDITIONS = {
    "aliases": "model",
    "tasks": "task",
    "organizations": "organization",
    "projects": "project",
    "tags": "key tag",
    "priorities": "priority",
}
PRIORITY_WORDS = {PRIORITY_LOW: "low", PRIORITY_NORMAL: "normal", PRIORITY_HIGH: "high"}
TONES = {
    CanaryVerdict.BETTER: "ok",
    CanaryVerdict.SAME: "off",
    CanaryVerdict.WORSE: "bad",
    CanaryVerdict.OTHER: "warn",
    CanaryVerdict.EARLY: "off",
}
WORDS = {CanaryVerdict.OTHER: "differs"}
FIGURES: dict[str, tuple[str, Callable[[float], str]]] = {
    "errors": ("Server errors", lambda value: percent(value, 1)),
    "ttft_p50": ("First token, p50", duration),
    "ttft_p95": ("First token, p95", duration),
    "cost": ("Cost per request", lambda value: usd_short(round(value))),
    "output_tokens": ("Tokens per answer", significant),
}


@dataclass(frozen=True)
class RuleRow:
    """One line of the table of rules; `place` is how errors name it."""

    place: str
    name: str
    when: list[str]
    steps: list[str]
    more: list[str]


def rule_rows(rules: Sequence[RouteRule], names: Mapping[str, str]) -> list[RuleRow]:
    """The rules in the order in which they are tried; `names` are of tenants by hex id."""
    return [
        RuleRow(
            f"rules[{place}]",
            rule.name,
            _when(rule.match, names),
            _steps(rule.steps),
            [f"{label.removesuffix(' given')} {told}" for label, told in _options(rule)],
        )
        for place, rule in enumerate(rules)
    ]


def rule_words(rule: RouteRule, names: Mapping[str, str]) -> dict[str, str]:
    """All that a rule says, by what it is about: conditions, steps, options."""
    told = {field: getattr(rule.match, field) for field in _CONDITIONS}
    words = {
        _CONDITIONS[field]: ", ".join(sorted(_value(one, names) for one in values))
        for field, values in told.items()
    }
    words["prompt"] = _size(rule.match).removeprefix("prompt ")
    words |= {f"step {number}": _step(0, step) for number, step in enumerate(rule.steps, 1)}
    words |= dict(_options(rule))
    return {label: each for label, each in words.items() if each}


def tenant_ids(rules: Iterable[RouteRule]) -> tuple[set[str], set[str]]:
    organizations, projects = set[str](), set[str]()
    for rule in rules:
        organizations |= rule.match.organizations
        projects |= rule.match.projects
    return organizations, projects


def _when(match: Match, names: Mapping[str, str]) -> list[str]:
    told = [
        _one_of(label, (_value(one, names) for one in getattr(match, field)))
        for field, label in _CONDITIONS.items()
    ]
    return [each for each in (*told, _size(match)) if each] or ["always"]


def _value(value: str | int, names: Mapping[str, str]) -> str:
    return _priority(value) if isinstance(value, int) else names.get(value, value)


def _one_of(what: str, values: Iterable[str]) -> str:
    listed = sorted(values)
    if not listed:
        return ""
    return f"{what} = {listed[0]}" if len(listed) == 1 else f"{what} is one of {', '.join(listed)}"


def _size(match: Match) -> str:
    least, most = match.prompt_tokens_min, match.prompt_tokens_max
    if least and most is not None:
        return f"prompt {count(least)} to {count(most)} tokens"
    if most is not None:
        return f"prompt ≤ {count(most)} tokens"
    return f"prompt ≥ {count(least)} tokens" if least else ""


def _steps(steps: Sequence[Step]) -> list[str]:
    told = [_step(number, step) for number, step in enumerate(steps)]
    return [*told, "otherwise reject"]


def _step(number: int, step: Step) -> str:
    places = []
    for target in step.targets:
        place = f"{target.model} in {target.pool}" if target.pool else target.model
        # Only targets that may serve the same request share it by weight.
        beside = [each for each in step.targets if each.size_class == target.size_class]
        whole = sum(each.weight for each in beside)
        drawn = len(beside) > 1 and whole > 0
        share = f"{100 * target.weight / whole:.3g} % " if drawn else ""
        sized = f"{target.size_class}: " if target.size_class else ""
        places.append(sized + share + place)
    wait = f"waits up to {step.queue_s:g} s" if step.queue_s else "no waiting"
    return f"{'else ' if number else ''}{' or '.join(places) or 'nowhere'}, {wait}"


def _options(rule: RouteRule) -> Iterator[tuple[str, str]]:
    if rule.priority is not None:
        yield "priority", _priority(rule.priority)
    if rule.deadline_s is not None:
        yield "deadline", f"{rule.deadline_s} s"
    if rule.first_token_s is not None:
        yield "first token within", f"{rule.first_token_s:g} s"
    if rule.degrade_order is not None:
        yield "degrade order", str(rule.degrade_order)
    if rule.continues_lost:
        yield "continues", "when a node is lost"
    if rule.shadow_class:
        yield "shadow", f"always {rule.shadow_class}; the choice is recorded"
    if rule.widen:
        yield "also to", "models that the key does not allow"
    if rule.on_too_long:
        yield "next step", "if the prompt is too long"
    if rule.on_content_filter:
        yield "next step", "if an answer is filtered"


def _priority(value: int) -> str:
    return PRIORITY_WORDS.get(value, str(value))


class FigureRow(NamedTuple):
    label: str
    control: str
    trial: str
    counts: str
    tone: str
    verdict: str


def verdict_words(verdict: CanaryVerdict) -> tuple[str, str]:
    return TONES[verdict], WORDS.get(verdict, verdict.value)


def figure_rows(figures: Iterable[CanaryFigure]) -> list[FigureRow]:
    return [_figure_row(finding) for finding in figures]


def _figure_row(finding: CanaryFigure) -> FigureRow:
    label, show = FIGURES[finding.figure]
    control, trial = (
        MISSING if value is None else show(value) for value in (finding.control, finding.trial)
    )
    counts = " / ".join(map(count, finding.counts))
    told = verdict_words(finding.verdict) if any(finding.counts) else ("off", "no values yet")
    return FigureRow(label, control, trial, counts, *told)
