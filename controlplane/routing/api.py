"""Routing rules under /api/routing/: each operation reads its body and calls one service."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import msgspec
from rest_framework.exceptions import APIException
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.core.api import ApiView
from controlplane.core.api_schema import operation
from controlplane.core.permissions import Action
from controlplane.routing import services, shapes
from controlplane.routing.bodies import canary_json, dry_run_json, ruleset_json, summary_json
from controlplane.routing.models import RuleSet
from controlplane.routing.rulesjson import read_rules
from controlplane.routing.selectors import rule_problems, ruleset_get, ruleset_list
from controlplane.routing.selectors_canary import canary_report
from controlplane.routing.selectors_dryrun import HOURS_DEFAULT, ruleset_dry_run
from controlplane.telemetry.reading import TooMuchToRead
from controlplane.tenants.access import require

CREATED, NO_CONTENT = 201, 204


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


class TooMuch(APIException):
    """The traffic that was asked about could not be read within the bound."""

    status_code = 503
    default_detail = "This holds too much traffic to read at once; ask about fewer hours."


class RulesView(ApiView):
    """What operations on rules share: who may not do any of them is told that first."""

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Before a body is read."""
        super().initial(request, *args, **kwargs)
        require(self.actor(), Action.ROUTING_MANAGE)

    def rule_set(self, version: int, revision: int | None = None) -> RuleSet:
        """The version, as the caller has seen it; raises DoesNotExist."""
        found = ruleset_get(actor=self.actor(), version=version)
        found.revision = found.revision if revision is None else revision
        return found

    def answer(self, rule_set: RuleSet, status: int = 200) -> Response:
        """The version as it is now."""
        now = ruleset_get(actor=self.actor(), version=rule_set.version)
        return Response(ruleset_json(now), status=status)


class RuleSets(RulesView):
    """`GET versions` and `POST versions`: the newest versions, and a new draft."""

    @operation(answer=shapes.VersionsJson)
    def get(self, request: Request) -> Response:
        """Newest first, without their rules."""
        found = ruleset_list(actor=self.actor())
        return Response({"versions": [summary_json(one) for one in found]})

    @operation(body=DraftBody, answer=shapes.RuleSetJson, status=CREATED)
    def post(self, request: Request) -> Response:
        """Begun from what is in force; it need not be valid yet, but of the form of rules."""
        draft = self.body(DraftBody)
        made = services.ruleset_draft_create(actor=self.actor(), rules=draft.rules, note=draft.note)
        return self.answer(made, CREATED)


class OneRuleSet(RulesView):
    """`GET | PUT | DELETE versions/<n>`: read one, change a draft, give a draft up."""

    @operation(answer=shapes.RuleSetJson)
    def get(self, request: Request, version: int) -> Response:
        """With its rules."""
        return self.answer(self.rule_set(version))

    @operation(body=ChangeBody, answer=shapes.RuleSetJson)
    def put(self, request: Request, version: int) -> Response:
        """Replace a draft's rules; 409 where somebody else changed it meanwhile."""
        change = self.body(ChangeBody)
        changed = services.ruleset_draft_update(
            actor=self.actor(),
            rule_set=self.rule_set(version, change.revision),
            rules=change.rules,
            note=change.note,
            rebase=change.rebase,
        )
        return self.answer(changed)

    @operation()
    def delete(self, request: Request, version: int) -> Response:
        """It stays readable."""
        services.ruleset_draft_discard(actor=self.actor(), rule_set=self.rule_set(version))
        return Response(status=NO_CONTENT)


class Validate(RulesView):
    """`POST versions/<n>/validate`: what is wrong with its rules."""

    @operation(answer=shapes.ProblemsJson)
    def post(self, request: Request, version: int) -> Response:
        """Errors, which keep it from being published, then warnings, which do not."""
        rules = read_rules(self.rule_set(version).rules)
        problems = rule_problems(actor=self.actor(), rules=rules)
        return Response({"problems": [asdict(problem) for problem in problems]})


class DryRunView(RulesView):
    """`POST versions/<n>/dry-run`: the version tried on recorded traffic."""

    @operation(body=DryRunBody, answer=shapes.DryRunJson)
    def post(self, request: Request, version: int) -> Response:
        """Who and what would have changed, at what price; money in nano-USD."""
        hours, found = self.body(DryRunBody).hours, self.rule_set(version)
        try:
            tried = ruleset_dry_run(actor=self.actor(), rule_set=found, hours=hours)
        except TooMuchToRead as error:
            raise TooMuch from error
        return Response(dry_run_json(tried))


class Publish(RulesView):
    """`POST versions/<n>/publish`: a draft put in force."""

    step_up_methods = frozenset({"POST"})

    @operation(body=RevisionBody, answer=shapes.RuleSetJson)
    def post(self, request: Request, version: int) -> Response:
        """Gateways follow within two seconds; 409 if another was published since it began."""
        found = self.rule_set(version, self.body(RevisionBody).revision)
        return self.answer(services.ruleset_publish(actor=self.actor(), rule_set=found))


class CanaryStart(RulesView):
    """`POST versions/<n>/canary`: a draft put on trial, or another share for the canary."""

    step_up_methods = frozenset({"POST"})

    @operation(body=CanaryBody, answer=shapes.RuleSetJson)
    def post(self, request: Request, version: int) -> Response:
        """Its comparison begins again with every change of the share."""
        wanted = self.body(CanaryBody)
        started = services.ruleset_canary_start(
            actor=self.actor(),
            rule_set=self.rule_set(version, wanted.revision),
            share_permille=wanted.share_permille,
            stops_itself=wanted.stops_itself,
        )
        return self.answer(started)


class CanaryPromote(RulesView):
    """`POST versions/<n>/promote`: the canary put in force."""

    step_up_methods = frozenset({"POST"})

    @operation(answer=shapes.RuleSetJson)
    def post(self, request: Request, version: int) -> Response:
        """For all requests."""
        found = self.rule_set(version)
        return self.answer(services.ruleset_canary_promote(actor=self.actor(), rule_set=found))


class CanaryStop(RulesView):
    """`POST versions/<n>/stop`: the canary ended."""

    @operation(body=StopBody, answer=shapes.RuleSetJson)
    def post(self, request: Request, version: int) -> Response:
        """All requests follow the published rules again."""
        reason, found = self.body(StopBody).reason, self.rule_set(version)
        stopped = services.ruleset_canary_stop(actor=self.actor(), rule_set=found, reason=reason)
        return self.answer(stopped)


class Canary(RulesView):
    """`GET canary`: the canary beside what is in force."""

    @operation(answer=shapes.CanaryAnswer)
    def get(self, request: Request) -> Response:
        """Errors, first token, cost and output length of both arms; null without a canary."""
        try:
            report = canary_report(actor=self.actor())
        except TooMuchToRead as error:
            raise TooMuch from error
        return Response({"canary": None if report is None else canary_json(report)})


class Rollback(RulesView):
    """`POST rollback`: the way back."""

    step_up_methods = frozenset({"POST"})

    @operation(body=RollbackBody, answer=shapes.RuleSetJson)
    def post(self, request: Request) -> Response:
        """Publish a copy of an earlier version under a new number; 0 is no rules. A canary ends."""
        version = self.body(RollbackBody).version
        to = self.rule_set(version) if version else None
        made = services.ruleset_rollback(actor=self.actor(), to=to, to_no_rules=version == 0)
        return self.answer(made)
