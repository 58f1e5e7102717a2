"""What is wrong with rules that can be read: errors keep them from being followed, warnings do not.

Pure: the names that rules may use are passed in, so the same checks serve pages, API and tests.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from controlplane.kernel.rules import (
    DIRECT,
    MATCH_VALUES_MAX,
    PRIORITIES,
    QUEUE_S_MAX,
    SIZE_CLASSES,
    STEPS_MAX,
    TARGETS_MAX,
    WEIGHT_MAX,
    Match,
    RouteRule,
    Step,
    Target,
)

RULE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,59}")
ID_HEX = re.compile(r"[0-9a-f]{32}")
TASKS = frozenset({"generate", "embed"})
# What a match says by sets of values.
SETS = ("aliases", "tasks", "organizations", "projects", "tags", "priorities")
DEADLINE_S_MAX = 3_600
FIRST_TOKEN_S_MAX = 600.0
DEGRADE_ORDER_MAX = 1_000
PROMPT_TOKENS_MAX = 10_000_000


@dataclass(frozen=True)
class RuleProblem:
    """One finding, at its field."""

    field: str
    message: str
    warning: bool = False


@dataclass(frozen=True)
class KnownNames:
    """What rules may name: models in service and pools with their task, and tenants as hex.

    Of the pools, `prefill_only` never get a whole request. `own_pools` are those of the models,
    `serving` each model with a pool in which a node serves it now.
    """

    models: Mapping[str, str]
    pools: Mapping[str, str]
    own_pools: Mapping[str, str]
    serving: frozenset[tuple[str, str]]
    organizations: frozenset[str]
    projects: frozenset[str]
    prefill_only: frozenset[str]


def find_problems(rules: Sequence[RouteRule], names: KnownNames) -> list[RuleProblem]:
    """Errors first, each kind in the order of the rules."""
    found = [problem for place, rule in enumerate(rules) for problem in _rule(place, rule, names)]
    found += _repeated_names(rules)
    found += _shadowed(rules)
    return sorted(found, key=lambda problem: problem.warning)


def covers(wider: Match, narrower: Match) -> bool:
    """Whether every request that meets `narrower` meets `wider`."""
    pairs = ((getattr(wider, name), getattr(narrower, name)) for name in SETS)
    if any(wide and not (narrow and narrow <= wide) for wide, narrow in pairs):
        return False
    return wider.prompt_tokens_min <= narrower.prompt_tokens_min and (
        wider.prompt_tokens_max is None
        or narrower.prompt_tokens_max is not None
        and narrower.prompt_tokens_max <= wider.prompt_tokens_max
    )


def _rule(place: int, rule: RouteRule, names: KnownNames) -> Iterator[RuleProblem]:
    at = f"rules[{place}]"
    if RULE_NAME.fullmatch(rule.name) is None or rule.name == DIRECT:
        message = "1 to 60 letters, digits, '.', '_' and '-'; begins with a letter or digit"
        yield RuleProblem(f"{at}.name", f"{message}; '{DIRECT}' is taken.")
    yield from _match(f"{at}.match", rule.match, names)
    yield from _bounds(at, rule)
    if not 1 <= len(rule.steps) <= STEPS_MAX:
        yield RuleProblem(f"{at}.steps", f"1 to {STEPS_MAX} steps.")
    for number, step in enumerate(rule.steps):
        yield from _step(f"{at}.steps[{number}]", step, names)
    yield from _tasks(at, rule, names)
    yield from _classes(at, rule, names)
    yield from _unreachable(at, rule)


def _match(at: str, match: Match, names: KnownNames) -> Iterator[RuleProblem]:
    for name in SETS:
        if len(getattr(match, name)) > MATCH_VALUES_MAX:
            yield RuleProblem(f"{at}.{name}", f"At most {MATCH_VALUES_MAX} values.")
    yield from _unknown(f"{at}.tasks", "task", match.tasks - TASKS)
    yield from _unknown(
        f"{at}.organizations", "organization", match.organizations - names.organizations
    )
    yield from _unknown(f"{at}.projects", "project", match.projects - names.projects)
    for priority in sorted(match.priorities - set(PRIORITIES)):
        yield RuleProblem(f"{at}.priorities", f"{priority} is not one of {_listed(PRIORITIES)}.")
    least, most = match.prompt_tokens_min, match.prompt_tokens_max
    if not 0 <= least <= PROMPT_TOKENS_MAX:
        yield RuleProblem(f"{at}.prompt_tokens_min", f"Must be 0 to {PROMPT_TOKENS_MAX}.")
    if most is not None and not least <= most <= PROMPT_TOKENS_MAX:
        message = f"Must be {least} (the minimum) to {PROMPT_TOKENS_MAX}, or omitted."
        yield RuleProblem(f"{at}.prompt_tokens_max", message)


def _bounds(at: str, rule: RouteRule) -> Iterator[RuleProblem]:
    if rule.priority is not None and rule.priority not in PRIORITIES:
        yield RuleProblem(f"{at}.priority", f"Must be one of {_listed(PRIORITIES)}.")
    if rule.deadline_s is not None and not 1 <= rule.deadline_s <= DEADLINE_S_MAX:
        yield RuleProblem(f"{at}.deadline_s", f"Must be 1 to {DEADLINE_S_MAX} seconds.")
    first = rule.first_token_s
    if first is not None and not (math.isfinite(first) and 0 < first <= FIRST_TOKEN_S_MAX):
        yield RuleProblem(
            f"{at}.first_token_s", f"Must be above 0 and at most {FIRST_TOKEN_S_MAX:g} seconds."
        )
    order = rule.degrade_order
    if order is not None and not 0 <= order <= DEGRADE_ORDER_MAX:
        yield RuleProblem(f"{at}.degrade_order", f"Must be 0 to {DEGRADE_ORDER_MAX}.")


def _step(at: str, step: Step, names: KnownNames) -> Iterator[RuleProblem]:
    if not (math.isfinite(step.queue_s) and 0 <= step.queue_s <= QUEUE_S_MAX):
        yield RuleProblem(f"{at}.queue_s", f"Must be 0 to {QUEUE_S_MAX:g} seconds.")
    if not 1 <= len(step.targets) <= TARGETS_MAX:
        yield RuleProblem(f"{at}.targets", f"1 to {TARGETS_MAX} targets.")
    seen: set[tuple[str, str | None, str | None]] = set()
    for number, target in enumerate(step.targets):
        here = f"{at}.targets[{number}]"
        if target.model not in names.models:
            yield RuleProblem(f"{here}.model", f"Model {target.model!r} is not served.")
        wrong = list(_pool(f"{here}.pool", target, names))
        yield from wrong or _served(here, target, names)
        if not 1 <= target.weight <= WEIGHT_MAX:
            yield RuleProblem(f"{here}.weight", f"Must be 1 to {WEIGHT_MAX}.")
        place = (target.model, target.pool, target.size_class)
        if place in seen:
            yield RuleProblem(here, "This step has the same model and pool twice.")
        seen.add(place)


def _pool(at: str, target: Target, names: KnownNames) -> Iterator[RuleProblem]:
    if target.pool is None:
        return
    task = names.pools.get(target.pool)
    if task is None:
        yield RuleProblem(at, f"Pool {target.pool!r} not found.")
    elif task != names.models.get(target.model, task):
        yield RuleProblem(at, f"The pool {target.pool!r} is for the task {task!r}.")
    elif target.pool in names.prefill_only:
        yield RuleProblem(
            at, f"The pool {target.pool!r} only runs prefill; choose one that decodes."
        )


def _served(at: str, target: Target, names: KnownNames) -> Iterator[RuleProblem]:
    """What stands in the catalogue, but has no node now: one may come, so this is no error."""
    pool = target.pool or names.own_pools.get(target.model, "")
    if target.model in names.models and (target.model, pool) not in names.serving:
        empty = all(where != pool for _, where in names.serving)
        why = "has no node that serves now" if empty else f"has no node with {target.model!r} now"
        message = f"Nothing can serve this target: the pool {pool!r} {why}."
        yield RuleProblem(at, message, warning=True)


def _tasks(at: str, rule: RouteRule, names: KnownNames) -> Iterator[RuleProblem]:
    """A rule must not send what it matches to a model that cannot do it."""
    wanted = _tasks_of(rule.match, names)
    for number, step in enumerate(rule.steps):
        for which, target in enumerate(step.targets):
            does = names.models.get(target.model)
            for task in sorted(wanted - {does}) if does else ():
                message = (
                    f"{target.model} does {does!r}, and the rule also matches requests to "
                    f"{task!r}; restrict it with match.tasks."
                )
                yield RuleProblem(f"{at}.steps[{number}].targets[{which}].model", message)


def _classes(at: str, rule: RouteRule, names: KnownNames) -> Iterator[RuleProblem]:
    """Size classes are chosen for what is generated; a step that lacks one has others serve it."""
    if rule.shadow_class and not rule.has_classes:
        message = "Without targets that have a size class there is nothing to choose from."
        yield RuleProblem(f"{at}.shadow_class", message)
    for number, step in enumerate(rule.steps):
        here = f"{at}.steps[{number}].targets"
        for which, target in enumerate(step.targets):
            if target.size_class and names.models.get(target.model) == "embed":
                message = "Size classes are chosen for requests that generate, not for embeddings."
                yield RuleProblem(f"{here}[{which}].size_class", message)
        there = {target.size_class for target in step.targets}
        missing = [each for each in SIZE_CLASSES if each not in there]
        if 0 < len(missing) < len(SIZE_CLASSES) and None not in there:
            message = f"No target has the size class {' or '.join(missing)}: others serve it."
            yield RuleProblem(here, message, warning=True)


def _tasks_of(match: Match, names: KnownNames) -> frozenset[str]:
    if match.tasks:
        return match.tasks & TASKS
    known = {names.models.get(alias) for alias in match.aliases}
    # Where every alias is a model's own name, a request of another task is refused for itself.
    return frozenset(task for task in known if task) if known and None not in known else TASKS


def _unreachable(at: str, rule: RouteRule) -> Iterator[RuleProblem]:
    waited, tried = 0.0, set[Target]()
    for number, step in enumerate(rule.steps):
        here = f"{at}.steps[{number}]"
        if rule.deadline_s is not None and number and waited >= rule.deadline_s:
            message = (
                f"Earlier steps may wait {waited:g} s and the deadline is {rule.deadline_s} s: "
                "this step is never reached when queues are full."
            )
            yield RuleProblem(here, message, warning=True)
        plain = (msgspec.structs.replace(each, weight=1) for each in step.targets)
        places = set(plain)
        if number and places <= tried:
            yield RuleProblem(here, "Earlier steps already try every target.", warning=True)
        tried |= places
        waited += step.queue_s


def _repeated_names(rules: Sequence[RouteRule]) -> Iterator[RuleProblem]:
    seen: dict[str, int] = {}
    for place, rule in enumerate(rules):
        first = seen.setdefault(rule.name, place)
        if first != place:
            yield RuleProblem(f"rules[{place}].name", f"rules[{first}] already has this name.")


def _shadowed(rules: Sequence[RouteRule]) -> Iterator[RuleProblem]:
    for place, rule in enumerate(rules):
        above = next((one for one in rules[:place] if covers(one.match, rule.match)), None)
        if above is not None:
            message = f"Never applies: {above.name!r} above it matches the same requests."
            yield RuleProblem(f"rules[{place}]", message, warning=True)


def _unknown(at: str, what: str, values: Iterable[str]) -> Iterator[RuleProblem]:
    for value in sorted(values):
        yield RuleProblem(at, f"Unknown {what} {value!r}.")


def _listed(values: Iterable[object]) -> str:
    return ", ".join(map(str, values))
