"""Reads of routing rules: the versions, what is in force, what is wrong with rules; how the canary
does, by recorded requests since its start, parted by the lot that decided theirs; and the dry run
of a version: recorded requests judged by the published rules and by its own.
"""

import uuid
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import msgspec
from django.core.exceptions import ValidationError
from django.db.models import Func, IntegerField

from controlplane.catalog.selectors import model_list, pool_list, price_in_force
from controlplane.core.audit.entries import Actor
from controlplane.core.permissions import Action
from controlplane.core.versions.selectors import in_force, on_trial
from controlplane.fleet.overview import places_served
from controlplane.fleet.selectors import pool_regions
from controlplane.kernel.rules import DIRECT, PERMILLE, Facts, RouteRule, draw_of
from controlplane.routing.canary import Arm, CanaryComparison, judge
from controlplane.routing.checks import ID_HEX, KnownNames, RuleProblem, find_problems
from controlplane.routing.dryrun import Judge, Move, MoveTally, Outcome, PoolNodes, compare
from controlplane.routing.models import RuleSet
from controlplane.routing.rulesjson import read_rules, versioned
from controlplane.routing.traffic import RecordedRequest, facts_of, read_sample
from controlplane.telemetry.selectors_requests import SERVER_FAILED_FROM
from controlplane.telemetry.selectors_traffic import TrafficRow
from controlplane.tenants.access import require
from controlplane.tenants.selectors import ORGANIZATIONS_MAX, organization_names, project_names

VERSIONS_SHOWN_MAX = 100
# Gateways follow within two seconds; requests that began before that had no lot yet.
SETTLE = timedelta(seconds=3)
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
    "Where a rule chooses by size class, requests for which none was chosen before count as large.",
    "Only the first step is shown: which requests would have waited or fallen back depends on "
    "load.",
)


def ruleset_list(*, actor: Actor) -> list[RuleSet]:
    """The newest versions, newest first, for staff: with `rules_count`, their rules unread.

    The rules of one may be a megabyte, and its origins' as much again.
    """
    require(actor, Action.ROUTING_MANAGE)
    count = Func("rules", function="jsonb_array_length", output_field=IntegerField())
    rows = RuleSet.objects.select_related("created_by", "based_on", "copy_of")
    rows = rows.defer("rules", "based_on__rules", "copy_of__rules").annotate(rules_count=count)
    return list(rows.order_by("-version")[:VERSIONS_SHOWN_MAX])


def ruleset_get(*, actor: Actor, version: int) -> RuleSet:
    """One version; raises DoesNotExist."""
    require(actor, Action.ROUTING_MANAGE)
    rows = RuleSet.objects.select_related("created_by", "based_on", "copy_of")
    return rows.get(version=version)


def ruleset_in_force() -> RuleSet | None:
    return in_force(RuleSet.objects.all())


def ruleset_on_trial() -> RuleSet | None:
    return on_trial(RuleSet.objects.all())


def rules_of(rule_set: RuleSet | None) -> tuple[RouteRule, ...]:
    """A version's rules as gateways have them; none without a version."""
    return versioned(read_rules(rule_set.rules), rule_set.version) if rule_set else ()


def aliases_known() -> frozenset[str]:
    """Names that rules in force or in canary lead on from."""
    return frozenset[str]().union(*(rule.match.aliases for rule in rules_now()))


def rules_now() -> tuple[RouteRule, ...]:
    """Rules in force, and those in canary after them."""
    return rules_of(ruleset_in_force()) + rules_of(ruleset_on_trial())


def rule_problems(*, actor: Actor, rules: Sequence[RouteRule]) -> list[RuleProblem]:
    """What is wrong with rules, held against what there is now."""
    require(actor, Action.ROUTING_MANAGE)
    organizations = organization_names(
        actor=actor, ids=hex_ids(one for rule in rules for one in rule.match.organizations)
    )
    projects = project_names(
        actor=actor, ids=hex_ids(one for rule in rules for one in rule.match.projects)
    )
    pools, models = pool_list(), model_list(enabled_only=True)
    names = KnownNames(
        models={model.name: model.task for model in models},
        pools={pool.name: pool.task for pool in pools},
        organizations=frozenset(one.hex for one in organizations),
        projects=frozenset(one.hex for one in projects),
        prefill_only=frozenset(pool.name for pool in pools if pool.prefills_only),
        own_pools={model.name: model.pool for model in models},
        serving=places_served(datetime.now(UTC), {model.name for model in models}),
    )
    return find_problems(rules, names)


def hex_ids(texts: Iterable[str]) -> list[uuid.UUID]:
    """Those of the texts that are ids as rules write them."""
    return [uuid.UUID(text) for text in texts if ID_HEX.fullmatch(text)]


class RouteCount(NamedTuple):
    """How many compared requests went by a label, as `name@version`."""

    label: str
    requests: int


@dataclass(frozen=True)
class CanaryReport:
    """Both arms since `start`. Requests that both versions treat alike are `alike` and left out.

    `complete`: of all tenants, all requests since the start were read.
    `unknown` could not be judged, `astray` carry a label of the other arm; neither is compared.
    """

    rule_set: RuleSet
    against: RuleSet | None
    start: datetime
    end: datetime
    complete: bool
    comparison: CanaryComparison
    routes: list[RouteCount]
    alike: int
    unknown: int
    astray: int


def canary_report(*, actor: Actor) -> CanaryReport | None:
    """The present canary beside what is in force; None without one. Raises TooMuchToRead."""
    require(actor, Action.ROUTING_MANAGE)
    canary, current = ruleset_on_trial(), ruleset_in_force()
    if canary is None or canary.canary_at is None:
        return None
    tenants = organization_names(actor=actor)
    sample = read_sample(tenants, canary.canary_at + SETTLE, datetime.now(UTC))
    facts = facts_of(sample.rows, actor=actor, organizations=tenants)
    parted = _Parted(canary, current)
    for row, seen in zip(sample.rows, facts, strict=True):
        parted.add(row, seen)
    return CanaryReport(
        rule_set=canary,
        against=current,
        start=sample.start,
        end=sample.end,
        complete=sample.complete and len(tenants) < ORGANIZATIONS_MAX,
        comparison=judge(parted.control, parted.trial),
        routes=[RouteCount(*each) for each in parted.labels.most_common()],
        alike=parted.alike,
        unknown=parted.unknown,
        astray=parted.astray,
    )


class _Parted:
    """The two arms, while rows are added."""

    def __init__(self, canary: RuleSet, current: RuleSet | None) -> None:
        pools = {model.name: model.pool for model in model_list(removed=True)}
        self._share = canary.share_permille / PERMILLE
        self._versions = current.version if current else None, canary.version
        self._judges = Judge(rules_of(current), pools), Judge(rules_of(canary), pools)
        self._sizes = sorted({*self._judges[0].sizes, *self._judges[1].sizes})
        self.control, self.trial = Arm(), Arm()
        self.labels: Counter[str] = Counter()
        self.alike = self.unknown = self.astray = 0

    def add(self, row: TrafficRow, facts: Facts | None) -> None:
        """Count one request in its arm, if the versions differ over it."""
        if facts is None:
            self.unknown += 1
        elif not self._differs(facts):
            self.alike += 1
        else:
            on_trial = draw_of(row.request.bytes) < self._share
            if _version(row.route) not in (None, self._versions[on_trial]):
                self.astray += 1
                return
            self.labels[row.route] += 1
            _count(self.trial if on_trial else self.control, row)

    def _differs(self, facts: Facts) -> bool:
        if facts.prompt_tokens:
            return self._differs_now(facts)
        # One that failed before it was counted: it may have had any size, in either arm alike.
        sized = (msgspec.structs.replace(facts, prompt_tokens=size) for size in self._sizes)
        return any(map(self._differs_now, sized))

    def _differs_now(self, facts: Facts) -> bool:
        old, new = (each.treatment(each.rule(facts), facts) for each in self._judges)
        return old != new


def _count(arm: Arm, row: TrafficRow) -> None:
    arm.requests += 1
    if row.status >= SERVER_FAILED_FROM:
        arm.errors += 1
    elif row.output_tokens:
        arm.cost_nano.append(row.cost_nano)
        arm.output_tokens.append(row.output_tokens)
        if row.ttft_us >= 0:
            arm.ttft_us.append(row.ttft_us)


def _version(label: str) -> int | None:
    """Of a rule's label; None for a request that no rule decided."""
    number = label.rpartition("@")[2]
    return int(number) if label != DIRECT and number.isdecimal() else None


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
        serving=places_served(now, {model.name for model in models}),
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
