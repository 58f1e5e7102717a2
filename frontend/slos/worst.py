"""The worst requests of an objective's window as its page tells them, and what they share."""

import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.http import HttpRequest
from django.utils import timezone

from controlplane.core.permissions import Action
from controlplane.kernel.ids import public_id, uuid_of
from controlplane.kernel.objectives.burn import MILLION
from controlplane.kernel.objectives.common import CommonValue
from controlplane.kernel.objectives.counting import CACHE_HIT
from controlplane.slos.models import Alert, Objective
from controlplane.slos.worst import Worst, alert_window, worst_requests
from controlplane.telemetry.models import RequestRecord
from controlplane.tenants.selectors import key_names, organization_ids
from frontend.shared import formats
from frontend.shared.access import Viewer
from frontend.shared.asked import in_time
from frontend.shared.filters import Filters, TimeRange
from frontend.slos.objectives import bucket_words

WORDS = {
    "model": "to model {}",
    "route": "routed by {}",
    "pool": "served by pool {}",
    "node": "on {}",
    "region": "in region {}",
    "key": "made with key “{}”",
    "bucket": "with a prompt of {} tokens",
}
# Those that the list of requests can be narrowed to.
FILTERS = frozenset(("model", "route", "pool", "region", "key"))


@dataclass(frozen=True)
class WorstRow:
    record: RequestRecord
    bad: str
    key: str


@dataclass(frozen=True)
class InCommon:
    """A sentence, and the query of the list with those requests; empty where it has no filter."""

    sentence: str
    query: str


@dataclass(frozen=True)
class WorstView:
    """`alert` set the window, or None; `within` is the same window for the list of requests."""

    within: TimeRange
    alert: Alert | None
    requests: int
    rows: list[WorstRow]
    common: list[InCommon]

    @property
    def query(self) -> str:
        return self.within.frozen_query


def read_worst(
    request: HttpRequest, viewer: Viewer, objective: Objective, alerts: list[Alert]
) -> WorstView | None:
    """Of the alert that the URL names, else of one that fires, else of the last hour; None where
    the window holds too much to read in time.
    """
    alert = _asked(request.GET.get("alert", ""), alerts)
    window = alert_window(alert, timezone.now())
    seen = organization_ids(user=viewer.user, action=Action.REQUEST_VIEW)
    found = in_time(
        lambda: worst_requests(
            objective=objective, organizations=seen, window=window, nodes=viewer.sees_fleet
        )
    )
    return _view(viewer, objective, alert, found, seen) if found else None


def _asked(text: str, alerts: list[Alert]) -> Alert | None:
    try:
        wanted = uuid_of(text, "alert")
    except ValueError:
        return next((one for one in alerts if one.recovered_at is None), None)
    return next((one for one in alerts if one.id == wanted), None)


def _view(
    viewer: Viewer, objective: Objective, alert: Alert | None, found: Worst, seen: list[uuid.UUID]
) -> WorstView:
    labels = {
        str(key): name
        for organization in {row.organization for row in found.rows} & set(seen)
        for key, name in key_names(user=viewer.user, organization_id=organization).items()
    }
    within = TimeRange(_floor(found.start), found.end + timedelta(seconds=1), "")
    return WorstView(
        within=within,
        alert=alert,
        requests=found.requests,
        rows=[
            WorstRow(row, _bad(objective, row), labels.get(str(row.key), "")) for row in found.rows
        ],
        common=[_common(one, labels, within) for one in found.common],
    )


def _floor(moment: datetime) -> datetime:
    return moment.replace(microsecond=0)


def _bad(objective: Objective, row: RequestRecord) -> str:
    badness: int | None = vars(row)["badness"]
    if badness is None:
        return f"{row.status} {row.error_code}".strip()
    if objective.indicator == CACHE_HIT:
        return f"{formats.percent(MILLION - badness, MILLION)} cached"
    return formats.duration(badness)


def _common(one: CommonValue, labels: dict[str, str], within: TimeRange) -> InCommon:
    value = one.value
    if one.dimension == "bucket":
        value = bucket_words()[int(value) + 1][1].removesuffix(" tokens")
    if one.dimension == "key":
        value = labels.get(value, public_id("key", uuid.UUID(value))[:13])
    share = formats.percent(one.rest_share, 1)
    all_of = f"All {one.worst}" if one.having == one.worst else f"{one.having} of the {one.worst}"
    sentence = f"{all_of} were {WORDS[one.dimension].format(value)}, and {share} of the others."
    query = ""
    if one.dimension in FILTERS:
        asked = public_id("key", uuid.UUID(one.value)) if one.dimension == "key" else one.value
        query = Filters(**{one.dimension: asked}).query(within)
    return InCommon(sentence, query)
