"""The watch over a canary: ends one whose errors are clearly worse, if it was started so."""

from controlplane.core.audit.entries import Operator
from controlplane.core.errors.conflict import Conflict
from controlplane.routing.canary import CanaryVerdict
from controlplane.routing.models import RuleSet
from controlplane.routing.selectors import ruleset_on_trial
from controlplane.routing.selectors_canary import canary_report
from controlplane.routing.services import RuleVersions


class CanaryWatch(Operator):
    """The job that looks at canaries, as the audit names it."""

    actor_label = "canary watch"


WATCH = CanaryWatch()


def ruleset_canary_watch() -> RuleSet | None:
    """The canary that was ended; None when there was no reason to. Raises TooMuchToRead."""
    canary = ruleset_on_trial()
    if canary is None or not canary.stops_itself:
        return None
    report = canary_report(actor=WATCH)
    if report is None or report.rule_set.id != canary.id:
        return None
    errors = report.comparison.findings[0]
    if errors.verdict != CanaryVerdict.WORSE or errors.control is None or errors.trial is None:
        return None
    reason = f"errors {errors.trial:.2%} of {errors.counts[1]} against {errors.control:.2%}"
    try:
        return RuleVersions(WATCH).canary_stop(canary, reason=reason)
    except Conflict:
        # Someone ended it while the figures were read.
        return None
