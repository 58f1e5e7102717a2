"""Publishing a version of the routing rules, whole; nothing edits a published one."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from django.core.exceptions import ValidationError
from django.db import connection, transaction
from django.db.models import Max

from controlplane.catalog.selectors import model_list
from controlplane.core.audit import Actor, audit_record
from controlplane.core.permissions import Action
from controlplane.routing.models import RouteRule, RuleSet
from controlplane.tenants.access import require
from controlplane.tenants.models import User
from controlplane.tenants.services import clean_name

RULES_MAX = 500


@dataclass(frozen=True, kw_only=True)
class RuleDraft:
    """Requests for `alias` (of `project`) go to `model` in `pool`; None matches everything."""

    name: str
    model: str
    pool: str
    alias: str | None = None
    project: uuid.UUID | None = None


def ruleset_publish(*, actor: Actor, rules: Sequence[RuleDraft], note: str = "") -> RuleSet:
    """Replace all rules by a new version, in the order given; the first match wins."""
    require(actor, Action.ROUTING_MANAGE)
    _check(rules)
    with transaction.atomic():
        with connection.cursor() as cursor:
            # Versions count up without gaps; readers are not held up.
            cursor.execute("SELECT pg_advisory_xact_lock(hashtext('rule_sets'))")
        last = RuleSet.objects.aggregate(last=Max("version"))["last"]
        made = RuleSet.objects.create(
            version=(last or 0) + 1,
            note=note[:200],
            created_by=actor if isinstance(actor, User) else None,
        )
        RouteRule.objects.bulk_create(
            RouteRule(
                rule_set=made,
                position=position,
                name=rule.name,
                alias=rule.alias,
                project_id=rule.project,
                model=rule.model,
                pool=rule.pool,
            )
            for position, rule in enumerate(rules)
        )
        audit_record(
            actor,
            "ruleset.publish",
            subject=made,
            organization_id=None,
            detail={"version": made.version, "rules": [rule.name for rule in rules]},
        )
    return made


def _check(rules: Sequence[RuleDraft]) -> None:
    if len(rules) > RULES_MAX:
        raise ValidationError({"rules": f"At most {RULES_MAX} rules."})
    known = {model.name for model in model_list()}
    for number, rule in enumerate(rules):
        clean_name(rule.name, field_name=f"rules[{number}].name")
        if rule.model not in known:
            raise ValidationError({f"rules[{number}].model": f"There is no model {rule.model!r}."})
