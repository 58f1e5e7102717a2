"""What other rules would have done with recorded requests: who, what, where and at what price.

Pure. Both sets are evaluated by the kernel's own functions with each request's own draw, so that
a request meets the target that it would have met.
"""

from bisect import bisect_right
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from controlplane.kernel.price import Price, TokenCounts, charge_nano
from controlplane.kernel.rules import (
    DIRECT,
    LARGEST,
    Facts,
    RouteRule,
    RuleIndex,
    Step,
    Target,
    class_targets,
    draw_of,
    open_targets,
    pick_target,
)
from controlplane.routing.tallies import TrafficTally
from controlplane.telemetry.selectors_traffic import TrafficRow


class FirstPlace(msgspec.Struct, frozen=True):
    """Where a request goes first."""

    model: str
    pool: str


# What the key may not use, and the rule does not widen.
REFUSED = FirstPlace("refused", "")


class Move(NamedTuple):
    """From one place to another."""

    before: FirstPlace
    after: FirstPlace


@dataclass(frozen=True)
class PoolNodes:
    """What there is now: own pools of all models, those in service and their prices, regions of
    pools, and models with the pools in which a node serves them.
    """

    pools: Mapping[str, str]
    served: frozenset[str]
    prices: Mapping[str, Price]
    regions: Mapping[str, frozenset[str]]
    serving: frozenset[tuple[str, str]]


@dataclass
class MoveTally(TrafficTally):
    """Counts and nano-USD of some requests.

    `moved` go to another model or pool first; `treated` go to the same with other steps, waits or
    priorities. Costs are at present prices: `after_nano` with as much cached as was, `cold_nano`
    with nothing cached for those that moved, which is `cached_lost` tokens.
    """

    moved: int = 0
    treated: int = 0
    cached_lost: int = 0
    before_nano: int = 0
    after_nano: int = 0
    cold_nano: int = 0

    @property
    def change(self) -> tuple[int, ...]:
        return self.moved, self.treated


@dataclass
class Outcome:
    """The same by tenant, project, region and move; and how many requests met each rule.

    `unserved` are requests by the place that they would go to first, where no node serves now.
    """

    total: MoveTally = field(default_factory=MoveTally)
    organizations: dict[str, MoveTally] = field(default_factory=dict)
    projects: dict[str, MoveTally] = field(default_factory=dict)
    regions: dict[str, MoveTally] = field(default_factory=dict)
    moves: dict[Move, MoveTally] = field(default_factory=dict)
    rules_before: dict[str, int] = field(default_factory=dict)
    rules_after: dict[str, int] = field(default_factory=dict)
    unserved: dict[FirstPlace, int] = field(default_factory=dict)
    alias_unknown: int = 0
    sizes_unknown: int = 0
    unpriced: int = 0
    leave_region: int = 0
    out_of_service: int = 0


class Judge:
    """One set of rules over many requests that look alike to it."""

    def __init__(self, rules: Sequence[RouteRule], pools: Mapping[str, str]) -> None:
        self._index = RuleIndex(rules)
        self._pools = pools
        self._edges = sorted({edge for rule in rules for edge in _edges(rule)})
        self._seen: dict[Hashable, RouteRule | None] = {}

    @property
    def sizes(self) -> tuple[int, ...]:
        """Prompt tokens of which each stands for all that are alike."""
        return (0, *self._edges)

    def rule(self, facts: Facts) -> RouteRule | None:
        band = bisect_right(self._edges, facts.prompt_tokens)
        key = (facts.alias, facts.task, facts.project, facts.tags, facts.priority, band)
        if key not in self._seen:
            self._seen[key] = self._index.first_match(facts)
        return self._seen[key]

    def place(self, rule: RouteRule | None, facts: Facts, draw: float) -> FirstPlace:
        if rule is None:
            return self._place(Target(model=facts.alias))
        found = (open_targets(rule, step, facts, self._pools) for step in rule.steps)
        targets = next(filter(None, found), None)
        if not targets:
            return REFUSED
        size = rule.shadow_class or facts.size_class or LARGEST
        return self._place(pick_target(class_targets(targets, size), draw))

    def treatment(self, rule: RouteRule | None, facts: Facts) -> Hashable:
        """All that a rule decides, apart from its name."""
        plain = rule or RouteRule(name=DIRECT, steps=(Step(targets=(Target(model=facts.alias),)),))
        steps = tuple(
            (
                tuple((self._place(each), each.weight, each.size_class) for each in step.targets),
                step.queue_s,
            )
            for step in plain.steps
        )
        rest = msgspec.structs.astuple(msgspec.structs.replace(plain, name="", version=0))
        return (steps, *rest[4:])

    def _place(self, target: Target) -> FirstPlace:
        return FirstPlace(target.model, target.pool or self._pools.get(target.model, ""))


def compare(
    rows: Sequence[TrafficRow],
    facts: Sequence[Facts | None],
    *,
    before: Sequence[RouteRule],
    after: Sequence[RouteRule],
    fleet: PoolNodes,
) -> Outcome:
    """Judge each row by both sets; rows whose alias or size is not known are only counted."""
    outcome = Outcome()
    judges = Judge(before, fleet.pools), Judge(after, fleet.pools)
    for row, seen in zip(rows, facts, strict=True):
        if row.prompt_tokens == 0:
            outcome.sizes_unknown += 1
        elif seen is None:
            outcome.alias_unknown += 1
        else:
            _count(outcome, row, seen, judges, fleet)
    return outcome


def _count(
    outcome: Outcome, row: TrafficRow, facts: Facts, judges: tuple[Judge, Judge], fleet: PoolNodes
) -> None:
    old, new = (judge.rule(facts) for judge in judges)
    for met, rule in ((outcome.rules_before, old), (outcome.rules_after, new)):
        name = rule.name if rule else DIRECT
        met[name] = met.get(name, 0) + 1
    draw = draw_of(row.request.bytes)
    move = Move(judges[0].place(old, facts, draw), judges[1].place(new, facts, draw))
    moved = move.before != move.after
    change = MoveTally(requests=1, moved=int(moved))
    if not moved:
        change.treated = int(judges[0].treatment(old, facts) != judges[1].treatment(new, facts))
    _price(outcome, change, row, move, fleet.prices)
    tallies = [
        outcome.total,
        outcome.organizations.setdefault(facts.organization, MoveTally()),
        outcome.projects.setdefault(facts.project, MoveTally()),
        outcome.regions.setdefault(row.region, MoveTally()),
    ]
    first = move.after
    if first != REFUSED and (first.model, first.pool) not in fleet.serving:
        outcome.unserved[move.after] = outcome.unserved.get(move.after, 0) + 1
    if moved:
        change.cached_lost = row.cached_tokens
        tallies.append(outcome.moves.setdefault(move, MoveTally()))
        outcome.out_of_service += move.after.model not in fleet.served
        outcome.leave_region += row.region not in fleet.regions.get(move.after.pool, frozenset())
    for tally in tallies:
        tally.add(change)


def _price(
    outcome: Outcome, change: MoveTally, row: TrafficRow, move: Move, prices: Mapping[str, Price]
) -> None:
    old, new = prices.get(move.before.model), prices.get(move.after.model)
    if old is None or new is None:
        outcome.unpriced += 1
        return
    counts = TokenCounts.from_usage(row.prompt_tokens, row.cached_tokens, row.output_tokens)
    cold = TokenCounts.from_usage(row.prompt_tokens, 0, row.output_tokens)
    change.before_nano = charge_nano(old, counts)
    change.after_nano = charge_nano(new, counts)
    change.cold_nano = charge_nano(new, cold if change.moved else counts)


def _edges(rule: RouteRule) -> list[int]:
    most = rule.match.prompt_tokens_max
    return [rule.match.prompt_tokens_min] + ([] if most is None else [most + 1])
