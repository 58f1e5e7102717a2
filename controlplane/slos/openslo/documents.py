"""Objectives as OpenSLO v1 and back: nothing of ours is lost on the way.

Where OpenSLO has no place for something, an annotation under `sluice/` has it: a burn-rate
condition there knows one window only, and an objective no owner. What is imported must name an
indicator that gateways count: a query of another system cannot be counted here.
"""

import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from math import isfinite
from typing import Any

import msgspec
import yaml
from django.core.exceptions import ValidationError
from django.db import transaction

from controlplane.core.api.shapes import read_shape
from controlplane.core.audit.entries import Actor
from controlplane.kernel.ids import public_id, uuid_of
from controlplane.kernel.objectives.burn import MILLION, PERIODS_DAYS, Rule
from controlplane.slos import services
from controlplane.slos.checks import Complaints, ObjectiveDraft, chosen_rules
from controlplane.slos.models import Objective
from controlplane.slos.openslo.shapes import SOURCE, VERSION, Query, Slo

YAML_CHARS_MAX = 200_000
OURS = "sluice/"
# What OpenSLO has no place for.
ANNOTATED: dict[str, type] = {
    "team": str,
    "email": str,
    "runbook": str,
    "enabled": bool,
    "absent_after_min": int,
    "shed_priority": int,
    "stop_canary": bool,
    "shift_version": int,
}
_PERIODS = {f"{days}d": days for days in PERIODS_DAYS}
_NOT_NAME = re.compile(r"[^a-z0-9]+")
_HOUR_MIN, _DAY_MIN = 60, 1_440
_NAME_CHARS_MAX = 63


class Imported(msgspec.Struct, frozen=True):
    """How many objectives were made, and how many of that name were there already."""

    made: int
    updated: int


def openslo_export(*, actor: Actor, organization: uuid.UUID) -> str:
    """Every living objective of an organization, one YAML document each."""
    with services.seeing(actor, organization):
        rows = Objective.objects.filter(organization=organization, ended_at=None)
        documents = [_document(one) for one in rows.order_by("name")]
    return str(yaml.safe_dump_all(documents, sort_keys=False, allow_unicode=True))


def openslo_import(*, actor: Actor, organization: uuid.UUID, text: str) -> Imported:
    """Make or change an objective for each SLO, all or none; others stay as they are."""
    with services.changing(actor, organization), transaction.atomic():
        made = 0
        drafts = [_draft(value, f"documents[{at}]") for at, value in enumerate(_documents(text))]
        for at, draft in enumerate(drafts):
            with _told_of(at):
                found = Objective.objects.filter(
                    organization=organization, name=draft.name, ended_at=None
                ).first()
                if found is None:
                    services.objective_create(actor=actor, organization=organization, draft=draft)
                    made += 1
                else:
                    services.objective_update(actor=actor, objective=found, draft=draft)
    return Imported(made, len(drafts) - made)


@contextmanager
def _told_of(place: int) -> Iterator[None]:
    """Complaints of a service, at the document that they are about."""
    try:
        yield
    except ValidationError as error:
        raise ValidationError(
            {f"documents[{place}].{field}": told for field, told in error.message_dict.items()}
        ) from error


def _documents(text: str) -> list[object]:
    """Values of all documents; raises ValidationError. Aliases are refused: they can explode."""
    if len(text) > YAML_CHARS_MAX:
        raise ValidationError({"yaml": f"At most {YAML_CHARS_MAX:,} characters."})
    try:
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, yaml.SafeLoader)):
            raise ValidationError({"yaml": "Aliases are not supported."})
        found = [one for one in yaml.safe_load_all(text) if one is not None]
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ValidationError({"yaml": f"Invalid YAML: {error}"}) from error
    if not 1 <= len(found) <= services.OBJECTIVES_MAX:
        raise ValidationError({"yaml": f"1 to {services.OBJECTIVES_MAX} documents."})
    return found


def _draft(value: object, place: str) -> ObjectiveDraft:
    document = read_shape(value, Slo, field=place)
    spec, wrong = document.spec, Complaints()
    source = spec.indicator.spec.ratio_metric.good.metric_source
    wrong.unless(document.api_version == VERSION, f"{place}.apiVersion", f"Must be {VERSION}.")
    wrong.unless(document.kind == "SLO", f"{place}.kind", "Must be SLO, with all its parts inline.")
    wrong.unless(
        spec.budgeting_method == "Occurrences", f"{place}.spec.budgetingMethod", "Occurrences only."
    )
    at = f"{place}.spec.indicator.spec.ratioMetric.good.metricSource.type"
    wrong.unless(source.type == SOURCE, at, f"Must be {SOURCE}, the counts of the gateways.")
    period = _PERIODS.get(spec.time_window[0].duration) if len(spec.time_window) == 1 else None
    rolling = period is not None and spec.time_window[0].is_rolling
    wrong.unless(rolling, f"{place}.spec.timeWindow", "One rolling window of 28d or 30d.")
    wrong.unless(len(spec.objectives) == 1, f"{place}.spec.objectives", "Exactly one.")
    wrong.unless(
        all(isfinite(one.target) for one in spec.objectives),
        f"{place}.spec.objectives[0].target",
        "Must be below 1.",
    )
    wrong.raise_any()
    rules = spec.alert_policies
    return ObjectiveDraft(
        name=document.metadata.display_name or document.metadata.name,
        target_ppm=round(spec.objectives[0].target * MILLION),
        period_days=period or PERIODS_DAYS[-1],
        rules=None if rules is None else tuple(rule.metadata.name for rule in rules),
        **_query(source.spec, f"{place}.spec"),
        **_annotated(document.metadata.annotations, f"{place}.metadata.annotations"),
    )


def _query(query: Query, place: str) -> dict[str, Any]:
    try:
        project = uuid_of(query.project, "proj") if query.project else None
    except ValueError:
        raise ValidationError({f"{place}.project": "Must be the id of a project."}) from None
    return {**msgspec.structs.asdict(query), "project": project}


def _annotated(annotations: dict[str, Any], place: str) -> dict[str, Any]:
    found: dict[str, Any] = {"team": ""}
    for name, kind in ANNOTATED.items():
        value = annotations.get(f"{OURS}{name}")
        if value is not None:
            found[name] = read_shape(value, kind, field=f"{place}.{OURS}{name}")
    return found


def _document(objective: Objective) -> dict[str, Any]:
    query = {name: getattr(objective, name) for name in Query.__struct_fields__}
    query["project"] = public_id("proj", objective.project) if objective.project else ""
    part = {"metricSource": {"type": SOURCE, "spec": query}}
    name = _NOT_NAME.sub("-", objective.name.lower()).strip("-")[:_NAME_CHARS_MAX] or "objective"
    kept = {name: getattr(objective, name) for name in ANNOTATED}
    return {
        "apiVersion": VERSION,
        "kind": "SLO",
        "metadata": {
            "name": name,
            "displayName": objective.name,
            "annotations": {f"{OURS}{key}": value for key, value in kept.items() if value != ""},
        },
        "spec": {
            "service": SOURCE,
            "indicator": {
                "metadata": {"name": objective.indicator.replace(":", "-").replace("_", "-")},
                "spec": {"ratioMetric": {"counter": True, "good": part, "total": deepcopy(part)}},
            },
            "timeWindow": [{"duration": f"{objective.period_days}d", "isRolling": True}],
            "budgetingMethod": "Occurrences",
            "objectives": [
                {"displayName": objective.name, "target": objective.target_ppm / MILLION}
            ],
            "alertPolicies": [
                _policy(rule, objective.period_days) for rule in chosen_rules(objective)
            ],
        },
    }


def _policy(rule: Rule, period_days: int) -> dict[str, Any]:
    return {
        "kind": "AlertPolicy",
        "metadata": {"name": rule.name},
        "spec": {
            "alertWhenBreaching": True,
            "conditions": [
                {
                    "kind": "AlertCondition",
                    "metadata": {
                        "name": rule.name,
                        "annotations": {f"{OURS}short_window": _window(rule.short_min)},
                    },
                    "spec": {
                        "severity": rule.severity,
                        "condition": {
                            "kind": "burnrate",
                            "op": "gt",
                            "threshold": round(rule.factor(period_days), 6),
                            "lookbackWindow": _window(rule.long_min),
                            "alertAfter": "0m",
                        },
                    },
                }
            ],
        },
    }


def _window(minutes: int) -> str:
    if minutes % _DAY_MIN == 0:
        return f"{minutes // _DAY_MIN}d"
    return f"{minutes // _HOUR_MIN}h" if minutes % _HOUR_MIN == 0 else f"{minutes}m"
