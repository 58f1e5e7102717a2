"""What the API answers about rules, as plain dictionaries of the same words as the code."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from controlplane.routing.dryrun import Move, Tally
from controlplane.routing.models import RuleSet
from controlplane.routing.selectors_canary import CanaryReport
from controlplane.routing.selectors_dryrun import DryRun, Group
from controlplane.routing.shapes import CanaryJson, DryRunJson, RuleSetJson, SummaryJson


def summary_json(rule_set: RuleSet) -> SummaryJson:
    """A version without its rules."""
    based_on, copy_of, maker = rule_set.based_on, rule_set.copy_of, rule_set.created_by
    return {
        "version": rule_set.version,
        "state": rule_set.state,
        "note": rule_set.note,
        "revision": rule_set.revision,
        "share_permille": rule_set.share_permille,
        "stops_itself": rule_set.stops_itself,
        "based_on": based_on.version if based_on else None,
        "copy_of": copy_of.version if copy_of else None,
        "created_by": maker.email if maker else None,
        "created_at": rule_set.created_at,
        "canary_at": rule_set.canary_at,
        "published_at": rule_set.published_at,
        "retired_at": rule_set.retired_at,
    }


def ruleset_json(rule_set: RuleSet) -> RuleSetJson:
    """A version with its rules, in the form in which they are sent."""
    return {**summary_json(rule_set), "rules": rule_set.rules}


def dry_run_json(found: DryRun) -> DryRunJson:
    """What a version would have changed."""
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
        "organizations": [_group(one) for one in found.organizations],
        "projects": [_group(one) for one in found.projects],
        "regions": [_group(one) for one in found.regions],
        "moves": [_move(move, tally) for move, tally in found.moves],
        "rules": [use._asdict() for use in found.rules],
        "notes": list(found.notes),
    }


def canary_json(report: CanaryReport) -> CanaryJson:
    """How the canary does."""
    comparison = report.comparison
    return {
        "version": report.rule_set.version,
        "against": report.against.version if report.against else None,
        "share_permille": report.rule_set.share_permille,
        "start": report.start,
        "end": report.end,
        "complete": report.complete,
        "verdict": comparison.verdict.value,
        "reasons": list(comparison.reasons),
        "figures": [
            {**asdict(each), "verdict": each.verdict.value} for each in comparison.findings
        ],
        "routes": [each._asdict() for each in report.routes],
        "alike": report.alike,
        "unknown": report.unknown,
        "astray": report.astray,
    }


def _group(group: Group) -> dict[str, Any]:
    return {"id": group.id, "name": group.name, **asdict(group.tally)}


def _move(move: Move, tally: Tally) -> dict[str, Any]:
    return {"before": move.before._asdict(), "after": move.after._asdict(), **asdict(tally)}
