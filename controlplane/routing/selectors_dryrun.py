"""The dry run of a version: recorded requests judged by the published rules and by its own."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from django.core.exceptions import ValidationError

from controlplane.catalog.selectors import model_list, price_in_force
from controlplane.core.audit.entries import Actor
from controlplane.core.permissions import Action
from controlplane.fleet.selectors import pool_regions
from controlplane.kernel.rules import DIRECT, RouteRule
from controlplane.routing.dryrun import Move, MoveTally, Outcome, PoolNodes, compare
from controlplane.routing.models import RuleSet
from controlplane.routing.selectors import hex_ids, rules_of, ruleset_in_force
from controlplane.routing.traffic import RecordedRequest, facts_of, read_sample
from controlplane.tenants.access import require
from controlplane.tenants.selectors_staff import (
    ORGANIZATIONS_MAX,
    organization_names,
    project_names,
)

HOURS_DEFAULT = 24
HOURS_MAX = 168
GROUPS_SHOWN_MAX = 20
NOTES = (
    "Rules see the size of the body, which is not recorded; prompt tokens are used instead.",
    "Tags and priority are the current ones of each key, not those at the time of the request.",
    "Costs use current prices and the recorded tokens; another model may count and answer "
    "differently.",
    "A prefix that is cached in one pool is not cached in another until requests arrive there: "
    "the lost tokens and the cost without cache are the upper bound of what a change costs at "
    "first.",
    "Only the first step is shown: which requests would have waited or fallen back depends on "
    "load.",
)


class MovedGroup(NamedTuple):
    """Requests of one tenant, project or region, by name."""

    id: str
    name: str
    tally: MoveTally


class RuleUse(NamedTuple):
    """How many requests a rule decides, in force and in the version tried."""

    name: str
    before: int
    after: int


@dataclass(frozen=True)
class DryRun:
    """What a version would have changed; lists hold the most affected, `cut` says of which.

    `hours` were asked for; the sample covers [`start`, `end`) whole only if `complete`.
    """

    version: int
    against: int | None
    hours: int
    start: datetime
    end: datetime
    complete: bool
    rows: int
    outcome: Outcome = field(repr=False)
    organizations: list[MovedGroup]
    projects: list[MovedGroup]
    regions: list[MovedGroup]
    moves: list[tuple[Move, MoveTally]]
    rules: list[RuleUse]
    notes: tuple[str, ...]

    @property
    def changed(self) -> bool:
        """Whether any judged request would have been moved or treated otherwise."""
        return bool(self.outcome.total.moved or self.outcome.total.treated)


def ruleset_dry_run(*, actor: Actor, rule_set: RuleSet, hours: int = HOURS_DEFAULT) -> DryRun:
    """Judge the newest requests of so many hours; raises ValidationError and TooMuchToRead."""
    require(actor, Action.ROUTING_MANAGE)
    if not 1 <= hours <= HOURS_MAX:
        raise ValidationError({"hours": f"Must be 1 to {HOURS_MAX}."})
    current = ruleset_in_force()
    before, after = rules_of(current), rules_of(rule_set)
    _require_targets(after)
    tenants = organization_names(actor=actor)
    now = datetime.now(UTC)
    sample = read_sample(tenants, now - timedelta(hours=hours), now)
    facts = facts_of(sample.rows, actor=actor, organizations=tenants)
    outcome = compare(sample.rows, facts, before=before, after=after, fleet=_fleet(now))
    projects = _most(outcome.projects)
    names = project_names(actor=actor, ids=hex_ids(projects))
    return DryRun(
        version=rule_set.version,
        against=current.version if current else None,
        hours=hours,
        start=_oldest(sample),
        end=sample.end,
        complete=sample.complete and len(tenants) < ORGANIZATIONS_MAX,
        rows=len(sample.rows),
        outcome=outcome,
        organizations=_groups(outcome.organizations, _hex(tenants)),
        projects=_groups(outcome.projects, _hex(names)),
        regions=_groups(outcome.regions, {}),
        moves=sorted(outcome.moves.items(), key=lambda each: -each[1].moved)[:GROUPS_SHOWN_MAX],
        rules=_uses(outcome, before, after),
        notes=NOTES,
    )


def _require_targets(rules: Sequence[RouteRule]) -> None:
    """A draft may lack them; then there is nowhere to send requests to."""
    for place, rule in enumerate(rules):
        if not rule.steps or not all(step.targets for step in rule.steps):
            raise ValidationError({f"rules[{place}].steps": "A step and a target are needed."})


def _fleet(now: datetime) -> PoolNodes:
    models = model_list()
    served = [model for model in models if model.enabled]
    prices = {model.name: price_in_force(model=model, at=now) for model in served}
    return PoolNodes(
        pools={model.name: model.pool for model in models},
        served=frozenset(model.name for model in served),
        prices={name: price for name, price in prices.items() if price is not None},
        regions=pool_regions(),
    )


def _oldest(sample: RecordedRequest) -> datetime:
    if sample.complete or not sample.rows:
        return sample.start
    return datetime.fromtimestamp((sample.rows[-1].request.int >> 80) / 1_000, UTC)


def _most(tallies: Mapping[str, MoveTally]) -> list[str]:
    """Those with most change first, then those with most requests."""

    def rank(name: str) -> tuple[int, int, int]:
        tally = tallies[name]
        return -tally.moved, -tally.treated, -tally.requests

    return sorted(tallies, key=rank)[:GROUPS_SHOWN_MAX]


def _groups(tallies: Mapping[str, MoveTally], names: Mapping[str, str]) -> list[MovedGroup]:
    return [MovedGroup(one, names.get(one, one), tallies[one]) for one in _most(tallies)]


def _hex(names: Mapping[uuid.UUID, str]) -> dict[str, str]:
    return {one.hex: name for one, name in names.items()}


def _uses(
    outcome: Outcome, before: Sequence[RouteRule], after: Sequence[RouteRule]
) -> list[RuleUse]:
    """All rules of both, the version's own first; those that no request met count zero."""
    names = dict.fromkeys([*(rule.name for rule in (*after, *before)), DIRECT])
    met = outcome.rules_before, outcome.rules_after
    return [RuleUse(name, met[0].get(name, 0), met[1].get(name, 0)) for name in names]
