"""The forms of what the API answers about rules."""

from dataclasses import asdict
from datetime import datetime
from typing import Any, TypedDict

from controlplane.core.answers import answer_of
from controlplane.kernel.ids import public_id
from controlplane.routing.dryrun import Move, MoveTally
from controlplane.routing.models import RuleSet
from controlplane.routing.selectors import CanaryReport, DryRun, MovedGroup


class SummaryJson(TypedDict):
    """A version without its rules."""

    version: int
    state: str
    note: str
    revision: int
    share_permille: int
    stops_itself: bool
    based_on: int | None
    copy_of: int | None
    created_by: str | None
    created_at: datetime
    canary_at: datetime | None
    published_at: datetime | None
    retired_at: datetime | None


class RuleSetJson(SummaryJson):
    """A version with its rules, in the form in which they are sent."""

    rules: Any


class ProblemsJson(TypedDict):
    """What is wrong with rules: `field`, `message`, and whether it is a mere `warning`."""

    problems: list[dict[str, Any]]


class SampleJson(TypedDict):
    """Which traffic was tried, and what was not known of it."""

    hours: int
    start: datetime
    end: datetime
    complete: bool
    requests: int
    sizes_unknown: int
    alias_unknown: int
    unpriced: int


class DryRunJson(TypedDict):
    """What a version would have changed; money in nano-USD."""

    version: int
    against: int | None
    sample: SampleJson
    total: dict[str, Any]
    leave_region: int
    out_of_service: int
    organizations: list[dict[str, Any]]
    projects: list[dict[str, Any]]
    regions: list[dict[str, Any]]
    moves: list[dict[str, Any]]
    rules: list[dict[str, Any]]
    notes: list[str]


class CanaryJson(TypedDict):
    """How the canary does beside what is in force."""

    version: int
    against: int | None
    share_permille: int
    start: datetime
    end: datetime
    complete: bool
    verdict: str
    reasons: list[str]
    figures: list[dict[str, Any]]
    routes: list[dict[str, Any]]
    alike: int
    unknown: int
    astray: int


class CanaryAnswer(TypedDict):
    """The canary; null where none is in canary."""

    canary: CanaryJson | None


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
