"""How the canary does: recorded requests since its start, parted by the lot that decided theirs."""

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import msgspec

from controlplane.catalog.selectors import model_list
from controlplane.core.audit.entries import Actor
from controlplane.core.permissions import Action
from controlplane.kernel.rules import DIRECT, PERMILLE, Facts, draw_of
from controlplane.routing.canary import Arm, CanaryComparison, judge
from controlplane.routing.dryrun import Judge
from controlplane.routing.models import RuleSet
from controlplane.routing.selectors import rules_of, ruleset_in_force, ruleset_on_trial
from controlplane.routing.traffic import facts_of, read_sample
from controlplane.telemetry.selectors_requests import SERVER_FAILED_FROM
from controlplane.telemetry.selectors_traffic import TrafficRow
from controlplane.tenants.access import require
from controlplane.tenants.selectors_staff import ORGANIZATIONS_MAX, organization_names

# Gateways follow within two seconds; requests that began before that had no lot yet.
SETTLE = timedelta(seconds=3)


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
        pools = {model.name: model.pool for model in model_list()}
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
