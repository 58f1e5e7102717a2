"""Routing rules under /api/routing/: each operation reads its body and calls one service."""

from dataclasses import asdict
from datetime import datetime
from typing import Any, TypedDict

import msgspec
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.core.answers import answer_of
from controlplane.core.api.schema import CREATED, Whole, operation
from controlplane.core.api.views import ApiView
from controlplane.core.permissions import Action
from controlplane.kernel.ids import public_id
from controlplane.routing import selectors
from controlplane.routing.dryrun import Move, MoveTally
from controlplane.routing.models import RuleSet
from controlplane.routing.rulesjson import read_rules
from controlplane.routing.services import RuleVersions
from controlplane.routing.sizing import NS_PER_US, size_report
from controlplane.tenants.access import require


class SummaryJson(TypedDict):
    """A version without its rules."""

    version: int
    state: str
    note: str
    revision: int
    share_permille: int
    stops_itself: bool
    based_on: int | None
    copy_of: int | None
    created_by: str | None
    created_at: datetime
    canary_at: datetime | None
    published_at: datetime | None
    retired_at: datetime | None


class RuleSetJson(SummaryJson):
    """A version with its rules, in the form in which they are sent."""

    rules: Any


class ProblemsJson(TypedDict):
    """What is wrong with rules: `field`, `message`, and whether it is a mere `warning`."""

    problems: list[dict[str, Any]]


class SampleJson(TypedDict):
    """Which traffic was tried, and what was not known of it."""

    hours: int
    start: datetime
    end: datetime
    complete: bool
    requests: int
    sizes_unknown: int
    alias_unknown: int
    unpriced: int


class DryRunJson(TypedDict):
    """What a version would have changed; money in nano-USD."""

    version: int
    against: int | None
    sample: SampleJson
    total: dict[str, Any]
    leave_region: int
    out_of_service: int
    unserved: list[dict[str, Any]]
    organizations: list[dict[str, Any]]
    projects: list[dict[str, Any]]
    regions: list[dict[str, Any]]
    moves: list[dict[str, Any]]
    rules: list[dict[str, Any]]
    notes: list[str]


class CanaryJson(TypedDict):
    """How the canary does beside what is in force."""

    version: int
    against: int | None
    share_permille: int
    start: datetime
    end: datetime
    complete: bool
    verdict: str
    reasons: list[str]
    figures: list[dict[str, Any]]
    routes: list[dict[str, Any]]
    alike: int
    unknown: int
    astray: int


class SizesJson(TypedDict):
    """What size classes did in the last day; `us` holds p50, p95 and p99 of choices."""

    start: datetime
    end: datetime
    complete: bool
    us: list[float | None]
    total: dict[str, Any]
    organizations: list[dict[str, Any]]


class SizesAnswer(TypedDict):
    """Size classes; null where no rule in force or in canary has any."""

    sizes: SizesJson | None


class CanaryAnswer(TypedDict):
    """The canary; null where none is in canary."""

    canary: CanaryJson | None


def summary_json(rule_set: RuleSet) -> SummaryJson:
    return answer_of(
        SummaryJson,
        rule_set,
        based_on=rule_set.based_on and rule_set.based_on.version,
        copy_of=rule_set.copy_of and rule_set.copy_of.version,
        created_by=rule_set.created_by and rule_set.created_by.email,
    )


def ruleset_json(rule_set: RuleSet) -> RuleSetJson:
    return {**summary_json(rule_set), "rules": rule_set.rules}


def dry_run_json(found: selectors.DryRun) -> DryRunJson:
    outcome = found.outcome
    return {
        "version": found.version,
        "against": found.against,
        "sample": {
            "hours": found.hours,
            "start": found.start,
            "end": found.end,
            "complete": found.complete,
            "requests": found.rows,
            "sizes_unknown": outcome.sizes_unknown,
            "alias_unknown": outcome.alias_unknown,
            "unpriced": outcome.unpriced,
        },
        "total": asdict(outcome.total),
        "leave_region": outcome.leave_region,
        "out_of_service": outcome.out_of_service,
        "unserved": [
            {**place._asdict(), "requests": requests}
            for place, requests in outcome.unserved.items()
        ],
        "organizations": [_group(one, "org") for one in found.organizations],
        "projects": [_group(one, "proj") for one in found.projects],
        "regions": [_group(one) for one in found.regions],
        "moves": [_move(move, tally) for move, tally in found.moves],
        "rules": [use._asdict() for use in found.rules],
        "notes": list(found.notes),
    }


def canary_json(report: selectors.CanaryReport) -> CanaryJson:
    comparison = report.comparison
    return answer_of(
        CanaryJson,
        report,
        version=report.rule_set.version,
        against=report.against and report.against.version,
        share_permille=report.rule_set.share_permille,
        verdict=comparison.verdict,
        reasons=list(comparison.reasons),
        figures=[{**asdict(each), "verdict": each.verdict.value} for each in comparison.findings],
        routes=[each._asdict() for each in report.routes],
    )


def _group(group: selectors.MovedGroup, prefix: str = "") -> dict[str, Any]:
    shown = public_id(prefix, group.id) if prefix else group.id
    return {"id": shown, "name": group.name, **asdict(group.tally)}


def _move(move: Move, tally: MoveTally) -> dict[str, Any]:
    return {"before": move.before._asdict(), "after": move.after._asdict(), **asdict(tally)}


class DraftBody(msgspec.Struct, forbid_unknown_fields=True):
    """A new draft; `rules` have the form of `kernel.rules.RouteRule`."""

    rules: Any
    note: str = ""


class ChangeBody(msgspec.Struct, forbid_unknown_fields=True):
    """A draft's new rules, the revision that they change, and what they were compared with."""

    rules: Any
    revision: int
    note: str = ""
    rebase: int | None = None


class RevisionBody(msgspec.Struct, forbid_unknown_fields=True):
    """Which revision of the draft the caller has seen."""

    revision: int


class CanaryBody(msgspec.Struct, forbid_unknown_fields=True):
    """A share of all requests; `stops_itself` ends it when its errors are clearly worse."""

    revision: int
    share_permille: int
    stops_itself: bool = False


class StopBody(msgspec.Struct, forbid_unknown_fields=True):
    """Why, for the audit."""

    reason: str = ""


class DryRunBody(msgspec.Struct, forbid_unknown_fields=True):
    """How far back."""

    hours: int = selectors.HOURS_DEFAULT


class RollbackBody(msgspec.Struct, forbid_unknown_fields=True):
    """To which version, 0 for no rules; left out, to the one in force before the present one."""

    version: int | None = None


class RulesView(ApiView, under="api/routing/"):
    """What operations on rules share: who may not do any of them is told that first."""

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        require(self.actor(), Action.ROUTING_MANAGE)

    def rule_set(self, version: int, revision: int | None = None) -> RuleSet:
        """The version, as the caller has seen it; raises DoesNotExist."""
        found = selectors.ruleset_get(actor=self.actor(), version=version)
        found.revision = found.revision if revision is None else revision
        return found

    def versions(self) -> RuleVersions:
        return RuleVersions(self.actor())

    def answer(self, rule_set: RuleSet, status: int = 200) -> Response:
        now = selectors.ruleset_get(actor=self.actor(), version=rule_set.version)
        return Response(ruleset_json(now), status=status)


class RuleSets(RulesView, at="versions"):
    @operation(list_of=Whole(SummaryJson))
    def get(self) -> Response:
        """List versions without their rules, newest first."""
        found = selectors.ruleset_list(actor=self.actor())
        return self.listed(found, summary_json, "version")

    @operation(body=DraftBody, answer={CREATED: RuleSetJson})
    def post(self, draft: DraftBody) -> Response:
        """Create a draft from the live version; it may be invalid but must be a list of rules."""
        made = self.versions().draft_create(draft.rules, note=draft.note)
        return self.answer(made, CREATED)


class OneRuleSet(RulesView, at="versions/<int:version>"):
    @operation(answer=RuleSetJson)
    def get(self, version: int) -> Response:
        """Get a version with its rules."""
        return self.answer(self.rule_set(version))

    @operation(body=ChangeBody, answer=RuleSetJson)
    def put(self, change: ChangeBody, version: int) -> Response:
        """Replace a draft's rules; 409 if it was changed in the meantime."""
        found, rebase = self.rule_set(version, change.revision), change.rebase
        return self.answer(
            self.versions().draft_update(found, change.rules, change.note, rebase=rebase)
        )

    @operation()
    def delete(self, version: int) -> None:
        """It stays readable."""
        self.versions().draft_discard(self.rule_set(version))


class Validate(RulesView, at="versions/<int:version>/validate"):
    @operation(answer=ProblemsJson)
    def post(self, version: int) -> ProblemsJson:
        """Check a version: errors, which prevent publication, then warnings."""
        rules = read_rules(self.rule_set(version).rules)
        problems = selectors.rule_problems(actor=self.actor(), rules=rules)
        return {"problems": [asdict(problem) for problem in problems]}


class DryRunView(RulesView, at="versions/<int:version>/dry-run"):
    @operation(body=DryRunBody, answer=DryRunJson)
    def post(self, asked: DryRunBody, version: int) -> DryRunJson:
        """Apply a version to recorded requests: what would change; money in nano-USD."""
        hours, found = asked.hours, self.rule_set(version)
        tried = selectors.ruleset_dry_run(actor=self.actor(), rule_set=found, hours=hours)
        return dry_run_json(tried)


class Publish(RulesView, at="versions/<int:version>/publish"):
    @operation(body=RevisionBody, answer=RuleSetJson, step_up=True)
    def post(self, asked: RevisionBody, version: int) -> Response:
        """Publish a draft within two seconds; 409 if another version was published since."""
        found = self.rule_set(version, asked.revision)
        return self.answer(self.versions().publish(found))


class CanaryStart(RulesView, at="versions/<int:version>/canary"):
    @operation(body=CanaryBody, answer=RuleSetJson, step_up=True)
    def post(self, wanted: CanaryBody, version: int) -> Response:
        """Start a canary or change its share, which restarts the comparison."""
        found, share = self.rule_set(version, wanted.revision), wanted.share_permille
        return self.answer(self.versions().canary_start(found, share, wanted.stops_itself))


class CanaryPromote(RulesView, at="versions/<int:version>/promote"):
    @operation(answer=RuleSetJson, step_up=True)
    def post(self, version: int) -> Response:
        """Promote the canary to all requests."""
        return self.answer(self.versions().canary_promote(self.rule_set(version)))


class CanaryStop(RulesView, at="versions/<int:version>/stop"):
    @operation(body=StopBody, answer=RuleSetJson)
    def post(self, asked: StopBody, version: int) -> Response:
        """Stop the canary; all requests follow the published rules."""
        reason, found = asked.reason, self.rule_set(version)
        return self.answer(self.versions().canary_stop(found, reason=reason))


class Canary(RulesView, at="canary"):
    @operation(answer=CanaryAnswer)
    def get(self) -> CanaryAnswer:
        """Compare the canary with the live version; null without a canary."""
        report = selectors.canary_report(actor=self.actor())
        return {"canary": None if report is None else canary_json(report)}


class Sizes(RulesView, at="sizes"):
    @operation(answer=SizesAnswer)
    def get(self) -> SizesAnswer:
        """Get what rules with size classes chose, what moved up and what it saved, in nano-USD."""
        found = size_report(actor=self.actor(), rules=selectors.rules_now())
        if found is None:
            return {"sizes": None}
        us = [None if each is None else each / NS_PER_US for each in found.ns]
        tenants = [
            {"id": public_id("org", one.id), "name": one.name, **asdict(one.tally)}
            for one in found.organizations
        ]
        total = asdict(found.total)
        return {"sizes": answer_of(SizesJson, found, us=us, total=total, organizations=tenants)}


class Rollback(RulesView, at="rollback"):
    @operation(body=RollbackBody, answer=RuleSetJson, step_up=True)
    def post(self, asked: RollbackBody) -> Response:
        """Publish a copy of an earlier version (0: no rules) under a new number; ends a canary."""
        version = asked.version
        to = self.rule_set(version) if version else None
        return self.answer(self.versions().rollback(to=to, to_nothing=version == 0))
