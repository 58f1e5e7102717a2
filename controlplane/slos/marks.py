"""What was changed or started in some time, to be marked on charts: publications of rules,
templates and prices as the audit log has them, and starts of gateways and nodes.

Rules, starts of nodes, and prices that are one project's are for staff.
"""

from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from django.db.models import Q

from controlplane.core.audit.entries import Actor
from controlplane.core.models import AuditEntry
from controlplane.core.permissions import Action
from controlplane.fleet.models import Gateway, NodeStart
from controlplane.slos.models import EVERYONE
from controlplane.telemetry.reading import TooMuchToRead, bounded_read
from controlplane.tenants.access import allows

# More would be a fence: of each source the newest are read, and of all of them the newest kept.
MARKS_MAX = 12
# Charts are read without them as well.
MS_MAX = 500
STEPS = {
    "publish": "published",
    "rollback": "rolled back",
    "canary_start": "canary started",
    "canary_stop": "canary stopped",
}
RULES, PROMPT, PRICE = "ruleset", "prompt", "price"
ACTIONS = [f"{PRICE}.publish", *(f"{thing}.{step}" for thing in (RULES, PROMPT) for step in STEPS)]


class Mark(NamedTuple):
    """Something that happened while figures were taken."""

    at: datetime
    text: str


def marks_between(
    *, actor: Actor, organization: UUID | None, start: datetime, end: datetime
) -> list[Mark]:
    """At most `MARKS_MAX` of [start, end), oldest first; the newest where there were more.

    None where they are not read within `MS_MAX`.
    """
    staff, fleet = allows(actor, Action.ROUTING_MANAGE), allows(actor, Action.FLEET_VIEW)
    try:
        with bounded_read([organization or EVERYONE, EVERYONE], MS_MAX):
            found = [*_published(start, end, staff=staff), *_gateways(start, end)]
            found += _nodes(start, end) if fleet else []
    except TooMuchToRead:
        return []
    return sorted(found)[-MARKS_MAX:]


def _published(start: datetime, end: datetime, *, staff: bool) -> Iterator[Mark]:
    rows = AuditEntry.objects.filter(action__in=ACTIONS, created_at__gte=start, created_at__lt=end)
    if not staff:
        everyones = Q(action__startswith=PRICE, detail__project=None)
        rows = rows.filter(everyones | Q(action__startswith=PROMPT))
    kept = rows.order_by("-created_at").values_list("created_at", "action", "detail")
    found = list(kept[:MARKS_MAX])
    for at, action, detail in found:
        yield Mark(at, _words(action, detail))


def _words(action: str, detail: dict[str, Any]) -> str:
    thing, _, step = action.partition(".")
    version = detail.get("version")
    if thing == PRICE:
        return f"price {version} of {detail.get('model')} published"
    what = "rules" if thing == RULES else f"template {detail.get('name', '')}".rstrip()
    return f"{what} {version} {STEPS[step]}"


def _gateways(start: datetime, end: datetime) -> Iterator[Mark]:
    rows = Gateway.objects.filter(started_at__gte=start, started_at__lt=end)
    minutes = Counter(
        at.replace(second=0, microsecond=0)
        for at in rows.order_by("-started_at").values_list("started_at", flat=True)[:MARKS_MAX]
    )
    for at, count in minutes.items():
        yield Mark(at, "gateway started" if count == 1 else f"{count} gateways started")


def _nodes(start: datetime, end: datetime) -> Iterator[Mark]:
    rows = NodeStart.objects.filter(created_at__gte=start, created_at__lt=end)
    found = rows.order_by("-created_at").values_list("created_at", "node__name")[:MARKS_MAX]
    for at, name in found:
        yield Mark(at, f"{name} started")
