"""Reads of routing rules."""

from controlplane.routing.models import RouteRule, RuleSet


def ruleset_in_force() -> RuleSet | None:
    """The newest version, None before any was published."""
    return RuleSet.objects.order_by("-version").first()


def rule_list(*, rule_set: RuleSet) -> list[RouteRule]:
    """A version's rules in the order in which they are tried."""
    return list(RouteRule.objects.filter(rule_set=rule_set).order_by("position"))
