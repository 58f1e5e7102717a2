"""The forms of what the API answers about rules."""

from datetime import datetime
from typing import Any, TypedDict


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
