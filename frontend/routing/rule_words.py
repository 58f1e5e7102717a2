"""Routing rules in words: when a rule applies, where it leads, and what else it decides."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from controlplane.kernel.rules import (
    PRIORITY_HIGH,
    PRIORITY_LOW,
    PRIORITY_NORMAL,
    Match,
    RouteRule,
    Step,
)
from frontend.shared.formats import count

PRIORITY_WORDS = {PRIORITY_LOW: "low", PRIORITY_NORMAL: "normal", PRIORITY_HIGH: "high"}


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
            f"rules[{place}]", rule.name, _when(rule.match, names), _steps(rule.steps), _more(rule)
        )
        for place, rule in enumerate(rules)
    ]


def tenant_ids(rules: Iterable[RouteRule]) -> tuple[set[str], set[str]]:
    organizations, projects = set[str](), set[str]()
    for rule in rules:
        organizations |= rule.match.organizations
        projects |= rule.match.projects
    return organizations, projects


def _when(match: Match, names: Mapping[str, str]) -> list[str]:
    told = [
        _one_of("model", match.aliases),
        _one_of("task", match.tasks),
        _one_of("organization", (names.get(one, one) for one in match.organizations)),
        _one_of("project", (names.get(one, one) for one in match.projects)),
        _one_of("key tag", match.tags),
        _one_of("priority", (_priority(one) for one in match.priorities)),
        _size(match),
    ]
    return [each for each in told if each] or ["always"]


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
    return [*told, "otherwise refuse"]


def _step(number: int, step: Step) -> str:
    whole = sum(target.weight for target in step.targets)
    places = []
    for target in step.targets:
        place = f"{target.model} in {target.pool}" if target.pool else target.model
        drawn = len(step.targets) > 1 and whole > 0
        share = f"{100 * target.weight / whole:.3g} % " if drawn else ""
        places.append(share + place)
    wait = f"waits up to {step.queue_s:g} s" if step.queue_s else "does not wait"
    return f"{'else ' if number else ''}{' or '.join(places) or 'nowhere'}, {wait}"


def _more(rule: RouteRule) -> list[str]:
    told = []
    if rule.priority is not None:
        told.append(f"priority {_priority(rule.priority)}")
    if rule.deadline_s is not None:
        told.append(f"deadline {rule.deadline_s} s")
    if rule.first_token_s is not None:
        told.append(f"first token within {rule.first_token_s:g} s")
    if rule.degrade_order is not None:
        told.append(f"degrade order {rule.degrade_order}")
    if rule.continues_lost:
        told.append("continues after a lost node")
    if rule.widen:
        told.append("also to models that the key does not allow")
    return told


def _priority(value: int) -> str:
    return PRIORITY_WORDS.get(value, str(value))
