"""What busy nodes were like, by ten seconds: read for one request's time, then forgotten."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import connection
from django.db.models import Max
from django.utils import timezone

from controlplane.core.audit.entries import Actor
from controlplane.core.jobs.each import drop_in_bites
from controlplane.core.permissions import Action
from controlplane.fleet.models import NodeMoment
from controlplane.tenants.access import require

STEP = timedelta(seconds=10)
MOMENT_DAYS = 3
ROWS_DELETED_MAX = 5_000
# In all, in a run each hour: what a thousand nodes that are always busy write in three hours.
BITES_MAX = 220


@dataclass(frozen=True)
class NodeLoadThen:
    """The most of each figure over some time; None where it is not known."""

    running: int
    waiting: int
    kv_permille: int | None
    cpu_permille: int | None
    step_us: int


def node_state(*, user: Actor, name: str, start: datetime, end: datetime) -> NodeLoadThen | None:
    """What a node was like, for staff; None where nothing is kept of that time."""
    require(user, Action.FLEET_VIEW)
    rows = NodeMoment.objects.filter(node__name=name, at__gt=start - STEP, at__lte=end)
    names = NodeLoadThen.__dataclass_fields__
    found = rows.aggregate(**{name: Max(name) for name in names})
    return NodeLoadThen(**found) if found["running"] is not None else None


def moments_forget() -> int:
    """Drop what is older than `MOMENT_DAYS`; returns how many rows."""
    keep_from = timezone.now() - timedelta(days=MOMENT_DAYS)

    def bite(rows_max: int) -> int:
        with connection.cursor() as cursor:
            cursor.execute(
                "DELETE FROM node_moments WHERE ctid = ANY (ARRAY("
                "SELECT ctid FROM node_moments WHERE at < %s LIMIT %s))",
                [keep_from, rows_max],
            )
            return int(cursor.rowcount)

    return drop_in_bites(bite, rows_max=ROWS_DELETED_MAX, bites_max=BITES_MAX)
