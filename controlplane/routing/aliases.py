"""Aliases: further names of a model, each a rule that leads from the name to the model alone.

They are rules like others, after all of them; what conditions and fallbacks need is written there.
"""

import re

from django.core.exceptions import ValidationError

from controlplane.catalog.models import MODEL_NAME, Model
from controlplane.catalog.selectors import model_find
from controlplane.core.audit.entries import Actor
from controlplane.kernel.rules import Match, RouteRule, Step, Target
from controlplane.routing.rulesjson import read_rules, write_rules
from controlplane.routing.selectors import (
    aliases_known,
    rules_now,
    rules_of,
    ruleset_in_force,
)
from controlplane.routing.services import RuleVersions

RULE_CHARS = 50
_NOT_OF_RULES = re.compile(r"[^A-Za-z0-9._-]")


def alias_add(*, actor: Actor, model: Model, alias: str) -> None:
    """Publish a rule that leads the name to the model; raises ValidationError for `alias`, and
    Conflict while a version of the rules is in canary.
    """
    versions = RuleVersions(actor)
    with versions.alone():
        try:
            MODEL_NAME(alias)
        except ValidationError as error:
            raise ValidationError({"alias": error.messages}) from error
        if model_find(name=alias) is not None:
            raise ValidationError({"alias": f"A model is named {alias!r} itself."})
        if alias in aliases_known():
            raise ValidationError({"alias": f"A rule already leads on from {alias!r}."})
        made = RouteRule(
            name=f"alias-{_NOT_OF_RULES.sub('-', alias)[:RULE_CHARS]}",
            match=Match(aliases=frozenset({alias}), tasks=frozenset({model.task})),
            steps=(Step(targets=(Target(model=model.name),)),),
        )
        _publish(versions, [*_rules_now(), made], f"{alias} for {model.name}")


def alias_remove(*, actor: Actor, model: Model, alias: str) -> None:
    """Publish the rules without the one of this alias; raises ValidationError without it."""
    versions = RuleVersions(actor)
    with versions.alone():
        rules = _rules_now()
        kept = [rule for rule in rules if _alias_of(rule, model.name) != alias]
        if len(kept) == len(rules):
            raise ValidationError({"alias": f"{alias!r} is no alias of {model.name}."})
        _publish(versions, kept, f"{alias} no longer for {model.name}")


def aliases_of(model: str) -> list[str]:
    """Further names of the model, in force now; other rules may lead to it besides."""
    found = (_alias_of(rule, model) for rule in rules_of(ruleset_in_force()))
    return sorted(alias for alias in found if alias is not None)


def rules_leading_to(model: str) -> list[str]:
    """Names of rules, in force or in canary, that may send a request to the model."""
    return sorted(
        {
            rule.name
            for rule in rules_now()
            if any(target.model == model for step in rule.steps for target in step.targets)
        }
    )


def _alias_of(rule: RouteRule, model: str) -> str | None:
    """The alias of a rule that is no more than that."""
    if len(rule.match.aliases) != 1:
        return None
    (alias,) = rule.match.aliases
    plain = RouteRule(
        name=rule.name,
        version=rule.version,
        match=Match(aliases=rule.match.aliases, tasks=rule.match.tasks),
        steps=(Step(targets=(Target(model=model),)),),
    )
    return alias if rule == plain else None


def _rules_now() -> list[RouteRule]:
    """The rules in force as they are written."""
    now = ruleset_in_force()
    return list(read_rules(now.rules)) if now else []


def _publish(versions: RuleVersions, rules: list[RouteRule], note: str) -> None:
    """What is wrong with them is told of the alias, for which they are published."""
    try:
        versions.publish(versions.draft_create(write_rules(rules), note))
    except ValidationError as error:
        raise type(error)({"alias": error.messages}) from error
