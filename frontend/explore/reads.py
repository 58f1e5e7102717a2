"""What a question of Explore comes to: whose requests, both spans, and the names of what was found.

A person sees what their role may of the organization shown, staff those of all.
"""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from controlplane.core.permissions import Action
from controlplane.kernel.ids import id_of_type, uuid_of
from controlplane.kernel.measures import PROMPT_BUCKET_LABELS
from controlplane.kernel.statuses import FAILED_FROM
from controlplane.telemetry.exploration import Exploration, Explored
from controlplane.telemetry.explore import explore
from controlplane.tenants.selectors import (
    ORGANIZATIONS_MAX,
    apikey_list,
    organization_names,
    project_list,
)
from frontend.explore.question import ALL, COUNTS_ALONE, ExploreQuestion
from frontend.shared import formats
from frontend.shared.access import Viewer
from frontend.shared.filters import RATED, RATINGS, STATUSES, TimeRange, request_filter

ID_CHARS_SHOWN, ID_END_CHARS = 13, 6
UNKNOWN = "none"
# What filters of dimensions are called where they have another name.
FILTER_OF = {
    "error_code": "error",
    "end_user": "user",
    "prompt_bucket": "length",
    "hour": "hours",
}
LISTED_STATUSES = frozenset(value for value, _ in STATUSES)
RATING_OF = {value: name for name, value in RATED.items()}


@dataclass(frozen=True)
class Findings:
    """Both spans; `name` says what a value of a dimension is called."""

    now: Explored
    before: Explored | None
    name: Callable[[str, Any], str]


def is_staff(viewer: Viewer) -> bool:
    """Whether they may look over all organizations, by the right that names them."""
    return viewer.may(Action.ROUTING_MANAGE)


def read_findings(viewer: Viewer, question: ExploreQuestion) -> Findings:
    """Raises TooMuchToRead."""
    ask = _exploration(viewer, question, question.within)
    other = question.other_span
    now = explore(ask)
    before = explore(_exploration(viewer, question, other)) if other else None
    return Findings(now, before, _namer(viewer, question))


def _exploration(viewer: Viewer, question: ExploreQuestion, within: TimeRange) -> Exploration:
    organizations = _organizations(viewer, question)
    name, equals, value = question.label.partition("=")
    hours = question.hours.split("-")
    # Series of the installation are of all organizations, however many there are.
    complete = question.organization == ALL and len(organizations) < ORGANIZATIONS_MAX
    return Exploration(
        wanted=request_filter(question.filters, organizations[0], within),
        organizations=organizations,
        by=tuple(question.groups),
        step_s=question.within.step_s,
        measure="" if question.measure == COUNTS_ALONE else question.measure,
        installation=complete,
        prompt_bucket=int(question.length) if question.length else None,
        template=question.template,
        label=name.strip(),
        label_value=value.strip() if equals else None,
        hours=(int(hours[0]), int(hours[1])) if question.hours else None,
    )


def _organizations(viewer: Viewer, question: ExploreQuestion) -> tuple[UUID, ...]:
    if question.organization == ALL:
        return tuple(organization_names(actor=viewer.user)) or (viewer.organization.id,)
    if question.organization:
        # Rights once more, as every page and API asks for names of tenants.
        wanted = uuid_of(question.organization, "org")
        return tuple(organization_names(actor=viewer.user, ids=[wanted])) or (wanted,)
    return (viewer.organization.id,)


def _namer(viewer: Viewer, question: ExploreQuestion) -> Callable[[str, Any], str]:
    names: dict[str, dict[UUID, str]] = {"project": {}, "key": {}, "organization": {}}
    if "project" in question.groups:
        names["project"] = {one.id: one.name for one in project_list(user=viewer.user)}
    if "key" in question.groups:
        keys = apikey_list(user=viewer.user, organization_id=viewer.organization.id)
        names["key"] = {one.id: one.label for one in keys}
    if "organization" in question.groups and is_staff(viewer):
        names["organization"] = organization_names(actor=viewer.user)

    repeated = {
        dimension: {text for text, count in Counter(known.values()).items() if count > 1}
        for dimension, known in names.items()
    }

    def name(dimension: str, value: Any) -> str:
        if dimension in names:
            text, own = names[dimension].get(value, ""), id_of_type(dimension, value)
            if text in repeated[dimension]:
                # Ids begin with a time, which what was made together shares.
                return f"{text} …{own[-ID_END_CHARS:]}"
            return text or own[:ID_CHARS_SHOWN]
        if dimension == "label" and value and not question.label:
            # All labels that a request has, as its receipt tells them.
            return ", ".join(f"{name}={text}" for name, text in json.loads(value).items())
        return value_words(dimension, value)

    return name


def value_words(dimension: str, value: Any) -> str:
    """A value of a dimension that has no names of its own."""
    if dimension == "prompt_bucket":
        return f"{PROMPT_BUCKET_LABELS[value]} tokens"
    if dimension == "hour":
        return f"{value:02}:00 to {(value + 1) % 24:02}:00"
    if dimension == "rating":
        return dict(RATINGS)[RATING_OF[value]] if value else UNKNOWN
    if isinstance(value, datetime):
        return formats.moment(value)
    return str(value) or UNKNOWN


def narrowed_to(question: ExploreQuestion, value: tuple[Any, ...]) -> ExploreQuestion | None:
    """The question about one group alone; None where no filter says that."""
    for dimension, one in zip(question.groups, value, strict=True):
        if one == "":
            return None
        if dimension == "time":
            start = max(one, question.within.start)
            end = min(one + question.step, question.within.end)
            question = replace(question, within=TimeRange(start, end, ""))
        elif (found := _filter_of(question, dimension, one)) is not None:
            question = question.with_filter(**found)
        else:
            return None
    return question


def _filter_of(question: ExploreQuestion, dimension: str, value: Any) -> dict[str, str] | None:
    name = FILTER_OF.get(dimension, dimension)
    if dimension in ("project", "key", "organization"):
        return {name: id_of_type(dimension, value)}
    if dimension == "hour":
        return {name: f"{value}-{value + 1}"}
    if dimension == "status":
        text = "ok" if value < FAILED_FROM else str(value)
        return {name: text} if text in LISTED_STATUSES else None
    if dimension == "rating":
        return {name: RATING_OF[value]} if value else None
    if dimension == "label":
        own, _, _ = question.label.partition("=")
        return {name: f"{own}={value}"} if own else None
    return {name: str(value)}
