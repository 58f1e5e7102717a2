"""Routing rules under /api/routing/: each operation reads its body and calls one service."""

from dataclasses import asdict
from datetime import datetime
from typing import Any, TypedDict

import msgspec
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.core.api.schema import CREATED, Whole, operation
from controlplane.core.api.views import ApiView
from controlplane.core.permissions import Action
from controlplane.core.versions.answers import VersionSummary, version_answer
from controlplane.routing import selectors
from controlplane.routing.models import RuleSet
from controlplane.routing.rulesjson import read_rules
from controlplane.routing.services import RuleVersions
from controlplane.routing.sizing import SizesJson, size_report
from controlplane.routing.traffic import HOURS_DEFAULT
from controlplane.tenants.access import require


class SummaryJson(VersionSummary):
    """A version without its rules."""

    share_permille: int
    stops_itself: bool
    based_on: int | None
    canary_at: datetime | None
    retired_at: datetime | None


class RuleSetJson(SummaryJson):
    """A version with its rules, in the form in which they are sent."""

    rules: Any


class ProblemsJson(TypedDict):
    """What is wrong with rules: `field`, `message`, and whether it is a mere `warning`."""

    problems: list[dict[str, Any]]


class SizesAnswer(msgspec.Struct, frozen=True):
    """Size classes; null where no rule in force or in canary has any."""

    sizes: SizesJson | None


class CanaryAnswer(msgspec.Struct, frozen=True):
    """The canary; null where none is in canary."""

    canary: selectors.CanaryJson | None


def summary_json(rule_set: RuleSet) -> SummaryJson:
    based_on = rule_set.based_on and rule_set.based_on.version
    return version_answer(SummaryJson, rule_set, based_on=based_on)


def ruleset_json(rule_set: RuleSet) -> RuleSetJson:
    return {**summary_json(rule_set), "rules": rule_set.rules}


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

    hours: int = HOURS_DEFAULT


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
    @operation(body=DryRunBody, answer=selectors.DryRunJson)
    def post(self, asked: DryRunBody, version: int) -> selectors.DryRunJson:
        """Apply a version to recorded requests: what would change; money in nano-USD."""
        hours, found = asked.hours, self.rule_set(version)
        return selectors.ruleset_dry_run(actor=self.actor(), rule_set=found, hours=hours)


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
        return CanaryAnswer(selectors.canary_report(actor=self.actor()))


class Sizes(RulesView, at="sizes"):
    @operation(answer=SizesAnswer)
    def get(self) -> SizesAnswer:
        """Get what rules with size classes chose, what moved up and what it saved, in nano-USD."""
        return SizesAnswer(size_report(actor=self.actor(), rules=selectors.rules_now()))


class Rollback(RulesView, at="rollback"):
    @operation(body=RollbackBody, answer=RuleSetJson, step_up=True)
    def post(self, asked: RollbackBody) -> Response:
        """Publish a copy of an earlier version (0: no rules) under a new number; ends a canary."""
        version = asked.version
        to = self.rule_set(version) if version else None
        return self.answer(self.versions().rollback(to=to, to_nothing=version == 0))
