"""What is special about versions of the rules: what they begin from, and the watch of canaries."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

from django.db import transaction
from django.utils import timezone

from controlplane.core.audit.entries import Actor, Facts, Operator
from controlplane.core.errors.body import Conflict
from controlplane.core.permissions import Action
from controlplane.core.queries import rows
from controlplane.core.versions.models import State
from controlplane.core.versions.services import Versions
from controlplane.routing import selectors
from controlplane.routing.canary import CanaryVerdict
from controlplane.routing.models import RuleSet
from controlplane.routing.rulesjson import read_rules, write_rules
from controlplane.tenants.access import require


class RuleVersions(Versions[RuleSet]):
    kind, content = "ruleset", "rules"
    nothing: ClassVar[object] = []

    def __init__(self, actor: Actor) -> None:
        super().__init__(actor, RuleSet.objects.all())

    @contextmanager
    def alone(self) -> Iterator[None]:
        require(self.actor, Action.ROUTING_MANAGE)
        with transaction.atomic():
            # Readers are not held up.
            rows("SELECT pg_advisory_xact_lock(hashtext('rule_sets'))")
            yield

    def new(self) -> RuleSet:
        return RuleSet(based_on=selectors.ruleset_in_force())

    def read(self, content: object) -> object:
        return write_rules(read_rules(content))

    def errors(self, version: RuleSet) -> Iterator[tuple[str, str]]:
        for problem in selectors.rule_problems(actor=self.actor, rules=read_rules(version.rules)):
            if not problem.warning:
                yield problem.field, problem.message

    def ready(self, version: RuleSet, *, trial: bool = False) -> RuleSet:
        """A draft begun from what is in force, while none is on trial; or the canary again."""
        canary, current = selectors.ruleset_on_trial(), selectors.ruleset_in_force()
        if trial and canary is not None and canary.id == version.id:
            return canary
        now = self.now(version, State.DRAFT)
        if canary is not None:
            message = f"Version {canary.version} is in canary: promote or stop it first."
            raise Conflict({"state": message})
        if now.based_on_id != (current.id if current else None):
            name = f"Version {current.version if current else 'none'}"
            message = f"{name} was published after this draft was created: compare and save it."
            raise Conflict({"based_on": message})
        return now

    def facts(self, version: RuleSet) -> Facts:
        if version.state != State.DRAFT:
            return {"version": version.version}
        names = [rule.name for rule in read_rules(version.rules)]
        return {"version": version.version, "rules": names}

    def draft_update(
        self, version: RuleSet, content: object, note: str, rebase: int | None = None
    ) -> RuleSet:
        """Change a draft, now compared with version `rebase`, which must be the one in force."""
        with self.alone():
            now = super().draft_update(version, content, note)
            if rebase is not None:
                now.change(based_on=_compared(rebase))
        return now

    def canary_start(
        self, version: RuleSet, share_permille: int, stops_itself: bool = False
    ) -> RuleSet:
        """`stops_itself` lets the watch end the trial when its errors are clearly worse."""
        with self.alone():
            now = super().canary_start(version, share_permille)
            # A new share makes the requests so far another mixture: the comparison begins again.
            now.change(canary_at=timezone.now(), stops_itself=stops_itself)
        return now

    def canary_promote(self, version: RuleSet) -> RuleSet:
        with self.alone():
            return self.put_in_force(self.now(version, State.CANARY), "canary_promote")


def _compared(version: int) -> RuleSet:
    current = selectors.ruleset_in_force()
    if current is None or current.version != version:
        told = f"Version {current.version}" if current else "No version"
        raise Conflict({"rebase": f"{told} is live now: compare the draft with it."})
    return current


class CanaryWatch(Operator):
    """The job that looks at canaries, as the audit names it."""

    actor_label = "canary watch"


WATCH = CanaryWatch()


def ruleset_canary_watch() -> RuleSet | None:
    """The canary that was ended; None when there was no reason to. Raises TooMuchToRead."""
    canary = selectors.ruleset_on_trial()
    if canary is None or not canary.stops_itself:
        return None
    report = selectors.canary_report(actor=WATCH)
    if report is None or report.version != canary.version:
        return None
    errors = report.figures[0]
    if errors.verdict != CanaryVerdict.WORSE or errors.control is None or errors.trial is None:
        return None
    reason = f"errors {errors.trial:.2%} of {errors.counts[1]} against {errors.control:.2%}"
    try:
        return RuleVersions(WATCH).canary_stop(canary, reason=reason)
    except Conflict:
        # Someone ended it while the figures were read.
        return None
