"""Reads of routing rules: the versions, what is in force, what is wrong with rules; how the canary
does, by recorded requests since its start, parted by the lot that decided theirs; and the dry run
of a version: recorded requests judged by the published rules and by its own.
"""

import uuid
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

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
from controlplane.routing.canary import Arm, CanaryFigure, CanaryVerdict, judge
from controlplane.routing.checks import ID_HEX, KnownNames, RuleProblem, find_problems
from controlplane.routing.dryrun import (
    FirstPlace,
    Judge,
    MoveTally,
    Outcome,
    PoolNodes,
    compare,
)
from controlplane.routing.models import RuleSet
from controlplane.routing.rulesjson import read_rules, versioned
from controlplane.routing.tallies import groups_of, most_changed
from controlplane.routing.traffic import (
    HOURS_DEFAULT,
    SETTLE,
    facts_of,
    hours_back,
    read_everyone,
)
from controlplane.telemetry.selectors_requests import SERVER_FAILED_FROM
from controlplane.telemetry.selectors_traffic import TrafficRow
from controlplane.tenants.access import require
from controlplane.tenants.selectors import organization_names, project_names

VERSIONS_SHOWN_MAX = 100
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


class RouteCount(msgspec.Struct, frozen=True):
    """How many compared requests went by a label, as `name@version`."""

    label: str
    requests: int


class CanaryJson(msgspec.Struct, frozen=True):
    """How the canary does beside what is in force: both arms since `start`, and what their
    `figures` say together.

    Requests that both versions treat alike are `alike`; `unknown` could not be judged, `astray`
    carry a label of the other arm. None of these is compared. `complete`: of all tenants, all
    requests since the start were read.
    """

    version: int
    against: int | None
    share_permille: int
    start: datetime
    end: datetime
    complete: bool
    verdict: CanaryVerdict
    reasons: tuple[str, ...]
    figures: tuple[CanaryFigure, ...]
    routes: list[RouteCount]
    alike: int
    unknown: int
    astray: int


def canary_report(*, actor: Actor) -> CanaryJson | None:
    """The present canary beside what is in force; None without one. Raises TooMuchToRead."""
    require(actor, Action.ROUTING_MANAGE)
    canary, current = ruleset_on_trial(), ruleset_in_force()
    if canary is None or canary.canary_at is None:
        return None
    tenants, sample = read_everyone(actor, canary.canary_at + SETTLE, datetime.now(UTC))
    facts = facts_of(sample.rows, actor=actor, organizations=tenants)
    parted = _Parted(canary, current)
    for row, seen in zip(sample.rows, facts, strict=True):
        parted.add(row, seen)
    found = judge(parted.control, parted.trial)
    return CanaryJson(
        version=canary.version,
        against=current.version if current else None,
        share_permille=canary.share_permille,
        start=sample.start,
        end=sample.end,
        complete=sample.complete,
        verdict=found.verdict,
        reasons=found.reasons,
        figures=found.findings,
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


@dataclass(kw_only=True)
class MovedGroup(MoveTally):
    """Requests of one tenant, project or region, by name."""

    id: str
    name: str


@dataclass(kw_only=True)
class CountedMove(MoveTally):
    """Requests that move from one place to another."""

    before: FirstPlace
    after: FirstPlace


class UnservedPlace(FirstPlace, frozen=True):
    """How many requests would go first where no node serves now."""

    requests: int


class RuleUse(msgspec.Struct, frozen=True):
    """How many requests a rule decides, in force and in the version tried."""

    name: str
    before: int
    after: int


class SampleJson(msgspec.Struct, frozen=True):
    """Which traffic was tried, whole only if `complete`, and what was not known of it."""

    hours: int
    start: datetime
    end: datetime
    complete: bool
    requests: int
    sizes_unknown: int
    alias_unknown: int
    unpriced: int


class DryRunJson(msgspec.Struct, frozen=True):
    """What a version would have changed, the most affected first; money in nano-USD."""

    version: int
    against: int | None
    sample: SampleJson
    total: MoveTally
    leave_region: int
    out_of_service: int
    unserved: list[UnservedPlace]
    organizations: list[MovedGroup]
    projects: list[MovedGroup]
    regions: list[MovedGroup]
    moves: list[CountedMove]
    rules: list[RuleUse]
    notes: tuple[str, ...] = NOTES


def ruleset_dry_run(*, actor: Actor, rule_set: RuleSet, hours: int = HOURS_DEFAULT) -> DryRunJson:
    """Judge the newest requests of so many hours; raises ValidationError and TooMuchToRead."""
    require(actor, Action.ROUTING_MANAGE)
    now, span, current = datetime.now(UTC), hours_back(hours), ruleset_in_force()
    before, after = rules_of(current), rules_of(rule_set)
    _require_targets(after)
    tenants, sample = read_everyone(actor, now - span, now)
    facts = facts_of(sample.rows, actor=actor, organizations=tenants)
    outcome = compare(sample.rows, facts, before=before, after=after, fleet=_fleet(now))
    names = project_names(actor=actor, ids=hex_ids(most_changed(outcome.projects)))
    unserved = sorted(outcome.unserved.items(), key=lambda each: -each[1])
    return DryRunJson(
        version=rule_set.version,
        against=current.version if current else None,
        sample=SampleJson(
            hours=hours,
            start=sample.begins,
            end=sample.end,
            complete=sample.complete,
            requests=len(sample.rows),
            sizes_unknown=outcome.sizes_unknown,
            alias_unknown=outcome.alias_unknown,
            unpriced=outcome.unpriced,
        ),
        total=outcome.total,
        leave_region=outcome.leave_region,
        out_of_service=outcome.out_of_service,
        unserved=[UnservedPlace(at.model, at.pool, requests) for at, requests in unserved],
        organizations=groups_of(_group, outcome.organizations, _hex(tenants), "org"),
        projects=groups_of(_group, outcome.projects, _hex(names), "proj"),
        regions=groups_of(_group, outcome.regions, {}),
        moves=[
            CountedMove(**vars(outcome.moves[move]), **move._asdict())
            for move in most_changed(outcome.moves)
        ],
        rules=_uses(outcome, before, after),
    )


def _group(of: str, name: str, tally: MoveTally) -> MovedGroup:
    return MovedGroup(**vars(tally), id=of, name=name)


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


def _hex(names: Mapping[uuid.UUID, str]) -> dict[str, str]:
    return {one.hex: name for one, name in names.items()}


def _uses(
    outcome: Outcome, before: Sequence[RouteRule], after: Sequence[RouteRule]
) -> list[RuleUse]:
    """All rules of both, the version's own first; those that no request met count zero."""
    names = dict.fromkeys([*(rule.name for rule in (*after, *before)), DIRECT])
    met = outcome.rules_before, outcome.rules_after
    return [RuleUse(name, met[0].get(name, 0), met[1].get(name, 0)) for name in names]
