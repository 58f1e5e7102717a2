"""Reads of routing rules: the versions, what is in force, and what is wrong with rules."""

import uuid
from collections.abc import Iterable, Sequence

from django.db.models import Func, IntegerField

from controlplane.catalog.selectors import model_list, pool_list
from controlplane.core.audit.entries import Actor
from controlplane.core.permissions import Action
from controlplane.core.versions.selectors import in_force, on_trial
from controlplane.kernel.rules import RouteRule
from controlplane.routing.checks import ID_HEX, KnownNames, RuleProblem, find_problems
from controlplane.routing.models import RuleSet
from controlplane.routing.rulesjson import read_rules, versioned
from controlplane.tenants.access import require
from controlplane.tenants.selectors_staff import organization_names, project_names

VERSIONS_SHOWN_MAX = 100


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
    sets = (rules_of(ruleset_in_force()), rules_of(ruleset_on_trial()))
    return frozenset[str]().union(*(rule.match.aliases for rules in sets for rule in rules))


def rule_problems(*, actor: Actor, rules: Sequence[RouteRule]) -> list[RuleProblem]:
    """What is wrong with rules, held against what there is now."""
    require(actor, Action.ROUTING_MANAGE)
    organizations = organization_names(
        actor=actor, ids=hex_ids(one for rule in rules for one in rule.match.organizations)
    )
    projects = project_names(
        actor=actor, ids=hex_ids(one for rule in rules for one in rule.match.projects)
    )
    pools = pool_list()
    names = KnownNames(
        models={model.name: model.task for model in model_list(enabled_only=True)},
        pools={pool.name: pool.task for pool in pools},
        organizations=frozenset(one.hex for one in organizations),
        projects=frozenset(one.hex for one in projects),
        prefill_only=frozenset(pool.name for pool in pools if pool.prefills_only),
    )
    return find_problems(rules, names)


def hex_ids(texts: Iterable[str]) -> list[uuid.UUID]:
    """Those of the texts that are ids as rules write them."""
    return [uuid.UUID(text) for text in texts if ID_HEX.fullmatch(text)]
