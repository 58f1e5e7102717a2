"""Routing rules: which model and pool serve a request, and which follow when those cannot.

Pure, so that a dry run and the hot path cannot disagree. The first rule that matches decides; a
request that none matches goes to the model it names, in that model's own pool.
"""

from collections.abc import Container, Iterator, Sequence
from typing import Literal, get_args

import msgspec

from controlplane.kernel.ids import uuid_of

DIRECT = "direct"
PRIORITY_LOW, PRIORITY_NORMAL, PRIORITY_HIGH = 0, 1, 2
PRIORITIES = (PRIORITY_LOW, PRIORITY_NORMAL, PRIORITY_HIGH)
RULES_MAX = 500
STEPS_MAX = 4
TARGETS_MAX = 8
WEIGHT_MAX = 1_000
PERMILLE = 1_000
DRAW_BYTES = 4
MATCH_VALUES_MAX = 64
# Conditions that name tenants: the prefix of their ids.
TENANTS = {"organizations": "org", "projects": "proj"}
QUEUE_S_DEFAULT = 30.0
QUEUE_S_MAX = 600.0
SizeClass = Literal["small", "medium", "large"]
SIZE_CLASSES: tuple[SizeClass, ...] = get_args(SizeClass)
LARGEST: SizeClass = "large"


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What rules can see of a request; ids are 32 hex characters.

    `prompt_tokens` is what the size of the body promises, since rules run before the tokenizer.
    `models` are those that the key is limited to; no condition looks at them. `size_class` is what
    the classifier says, None where it was not asked.
    """

    alias: str
    task: str
    organization: str
    project: str
    tags: frozenset[str] = frozenset()
    prompt_tokens: int = 0
    priority: int = PRIORITY_NORMAL
    models: frozenset[str] | None = None
    size_class: SizeClass | None = None


class Match(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a rule applies to: all of its conditions, each of them any of its values.

    An empty condition is met by everything. `prompt_tokens_max` is the last that matches. Ids are
    read in every form.
    """

    aliases: frozenset[str] = frozenset()
    tasks: frozenset[str] = frozenset()
    organizations: frozenset[str] = frozenset()
    projects: frozenset[str] = frozenset()
    tags: frozenset[str] = frozenset()
    priorities: frozenset[int] = frozenset()
    prompt_tokens_min: int = 0
    prompt_tokens_max: int | None = None

    def __post_init__(self) -> None:
        for name, prefix in TENANTS.items():
            digits = frozenset(_digits(prefix, text) for text in getattr(self, name))
            msgspec.structs.force_setattr(self, name, digits)


class Target(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model in a pool; None takes the model's own pool. `weight` is its share among siblings.

    Where siblings have a `size_class`, those of the request's serve it, and those without one.
    """

    model: str
    pool: str | None = None
    weight: int = 1
    size_class: SizeClass | None = None


class Step(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of `targets` serves; a request waits at most `queue_s` for room before the next step.

    0 goes on at once. After the last step the request is refused.
    """

    targets: tuple[Target, ...]
    queue_s: float = QUEUE_S_DEFAULT


class RouteRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """First match wins. None leaves what the key, the gateway or the request says.

    `priority` replaces the key's; `deadline_s` bounds the whole request, `first_token_s` the time
    to its first token on one node. `degrade_order`: under load, routes with a lower number are
    moved to their next step, or shed, before those with a higher one; None goes last.
    `continues_lost`: after a lost node another goes on from the tokens already delivered.
    `widen`: also targets beyond the models that a key is limited to. The next step is also tried
    where a prompt does not fit the window (`on_too_long`), or an answer was withheld for its
    content before any of it was delivered (`on_content_filter`).
    `shadow_class` serves whatever size class is chosen: the choice is only recorded.
    """

    name: str
    version: int = 0
    match: Match = Match()
    steps: tuple[Step, ...]
    priority: int | None = None
    deadline_s: int | None = None
    first_token_s: float | None = None
    degrade_order: int | None = None
    continues_lost: bool = False
    widen: bool = False
    on_too_long: bool = False
    on_content_filter: bool = False
    shadow_class: SizeClass | None = None

    @property
    def has_classes(self) -> bool:
        """Whether the size class of a request decides which of its targets serve it."""
        return any(target.size_class for step in self.steps for target in step.targets)

    @property
    def label(self) -> str:
        return f"{self.name}@{self.version}"


class CanaryRules(msgspec.Struct, frozen=True, kw_only=True):
    """A version in canary: `share_permille` of requests follow its rules instead."""

    rules: tuple[RouteRule, ...]
    share_permille: int


class RuleIndex:
    """Rules in their order, by the alias that they name: a request looks at those of its own."""

    __slots__ = ("_by_alias", "_of_any")

    def __init__(self, rules: Sequence[RouteRule]) -> None:
        self._of_any = tuple(rule for rule in rules if not rule.match.aliases)
        named = frozenset[str]().union(*(rule.match.aliases for rule in rules))
        self._by_alias = {alias: tuple(_of_alias(rules, alias)) for alias in named}

    def first_match(self, facts: Facts) -> RouteRule | None:
        """As the function of this name finds it."""
        return first_match(self._by_alias.get(facts.alias, self._of_any), facts)


class RuleBook:
    """The rules in force, and those in canary; made once per version, asked once per request."""

    __slots__ = ("_candidate", "_rules", "_share")

    def __init__(self, rules: Sequence[RouteRule], candidate: CanaryRules | None = None) -> None:
        self._rules = RuleIndex(rules)
        self._candidate = RuleIndex(candidate.rules) if candidate else self._rules
        self._share = candidate.share_permille / PERMILLE if candidate else 0.0

    def rule_for(self, facts: Facts, draw: float) -> tuple[RouteRule | None, float]:
        """The rule that decides, and a draw that is left for its targets; draws in [0, 1)."""
        share = self._share
        if draw < share:
            return self._candidate.first_match(facts), draw / share
        return self._rules.first_match(facts), (draw - share) / (1.0 - share)


def _of_alias(rules: Sequence[RouteRule], alias: str) -> Iterator[RouteRule]:
    return (rule for rule in rules if not rule.match.aliases or alias in rule.match.aliases)


def first_match(rules: Sequence[RouteRule], facts: Facts) -> RouteRule | None:
    return next((rule for rule in rules if mismatch(rule.match, facts) is None), None)


def mismatch(match: Match, facts: Facts) -> str | None:
    """The first condition that is not met, by its field's name; None when all are."""
    if match.aliases and facts.alias not in match.aliases:
        return "aliases"
    if match.tasks and facts.task not in match.tasks:
        return "tasks"
    if match.organizations and facts.organization not in match.organizations:
        return "organizations"
    if match.projects and facts.project not in match.projects:
        return "projects"
    if match.tags and match.tags.isdisjoint(facts.tags):
        return "tags"
    if match.priorities and facts.priority not in match.priorities:
        return "priorities"
    if facts.prompt_tokens < match.prompt_tokens_min:
        return "prompt_tokens_min"
    if match.prompt_tokens_max is not None and facts.prompt_tokens > match.prompt_tokens_max:
        return "prompt_tokens_max"
    return None


def draw_of(request: bytes) -> float:
    """A number in [0, 1) from the random bits at the end of a request's id: the same every time."""
    return int.from_bytes(request[-DRAW_BYTES:], "big") / (1 << 8 * DRAW_BYTES)


def open_targets(
    rule: RouteRule, step: Step, facts: Facts, known: Container[str]
) -> tuple[Target, ...]:
    """The step's targets that the key's models leave; `known` are the names of all models, also of
    those out of service.

    A key that may name an alias of rules, no model itself, may use what the alias stands for.
    """
    if rule.widen or facts.models is None or facts.alias not in known:
        return step.targets
    return tuple(target for target in step.targets if target.model in facts.models)


def class_targets(targets: Sequence[Target], wanted: SizeClass) -> tuple[Target, ...]:
    """Those of the size class, or of the next larger one that is there, or else the next smaller;
    and those of no class.
    """
    place = SIZE_CLASSES.index(wanted)
    for each in (*SIZE_CLASSES[place:], *reversed(SIZE_CLASSES[:place])):
        found = tuple(target for target in targets if target.size_class in (None, each))
        if found:
            return found
    return tuple(targets)


def pick_target(targets: Sequence[Target], draw: float) -> Target:
    """One target by weight; `draw` in [0, 1]."""
    left = draw * sum(target.weight for target in targets)
    for target in targets[:-1]:
        left -= target.weight
        if left < 0:
            return target
    return targets[-1]


def _digits(prefix: str, text: str) -> str:
    """An id as 32 hex digits; what is none stays, for the checks to name."""
    try:
        return uuid_of(text, prefix).hex
    except ValueError:
        return text
