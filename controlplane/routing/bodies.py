"""What the API answers about rules, as plain dictionaries of the same words as the code."""

from dataclasses import asdict
from typing import Any

from controlplane.core.answers import answer_of
from controlplane.kernel.ids import public_id
from controlplane.routing.dryrun import Move, MoveTally
from controlplane.routing.models import RuleSet
from controlplane.routing.selectors_canary import CanaryReport
from controlplane.routing.selectors_dryrun import DryRun, MovedGroup
from controlplane.routing.shapes import CanaryJson, DryRunJson, RuleSetJson, SummaryJson


def summary_json(rule_set: RuleSet) -> SummaryJson:
    return answer_of(
        SummaryJson,
        rule_set,
        based_on=rule_set.based_on and rule_set.based_on.version,
        copy_of=rule_set.copy_of and rule_set.copy_of.version,
        created_by=rule_set.created_by and rule_set.created_by.email,
    )


def ruleset_json(rule_set: RuleSet) -> RuleSetJson:
    return {**summary_json(rule_set), "rules": rule_set.rules}


def dry_run_json(found: DryRun) -> DryRunJson:
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
        "organizations": [_group(one, "org") for one in found.organizations],
        "projects": [_group(one, "proj") for one in found.projects],
        "regions": [_group(one) for one in found.regions],
        "moves": [_move(move, tally) for move, tally in found.moves],
        "rules": [use._asdict() for use in found.rules],
        "notes": list(found.notes),
    }


def canary_json(report: CanaryReport) -> CanaryJson:
    comparison = report.comparison
    return answer_of(
        CanaryJson,
        report,
        version=report.rule_set.version,
        against=report.against and report.against.version,
        share_permille=report.rule_set.share_permille,
        verdict=comparison.verdict,
        reasons=list(comparison.reasons),
        figures=[{**asdict(each), "verdict": each.verdict.value} for each in comparison.findings],
        routes=[each._asdict() for each in report.routes],
    )


def _group(group: MovedGroup, prefix: str = "") -> dict[str, Any]:
    shown = public_id(prefix, group.id) if prefix else group.id
    return {"id": shown, "name": group.name, **asdict(group.tally)}


def _move(move: Move, tally: MoveTally) -> dict[str, Any]:
    return {"before": move.before._asdict(), "after": move.after._asdict(), **asdict(tally)}
