"""What each key spends for nothing, as gateways counted it; of an organization, by days."""

import uuid
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from django.db.models import Sum

from controlplane.core.audit.entries import Actor
from controlplane.core.jobs.each import drop_in_bites
from controlplane.core.permissions import Action
from controlplane.core.queries import value
from controlplane.insights.models import HygieneHour
from controlplane.kernel.insights.fixes import OTHER, code_for
from controlplane.kernel.insights.hygiene import KINDS
from controlplane.telemetry.reading import bounded_read
from controlplane.tenants.access import require
from controlplane.tenants.selectors import names_of

LOOKED, LEFT_OUT = "looked", "left_out"
KEYS_MAX = 500
DAYS_DEFAULT, DAYS_MAX = 7, 90
PLAYGROUND = "Playground"


@dataclass(frozen=True)
class Waste:
    """Findings of one kind: requests that had it, and what mending them would have saved.

    `client` is the one that had it most often, as in `kernel.insights.fixes.CLIENTS`.
    They are of the requests that were looked at, scaled to all: estimates.
    """

    kind: str
    client: str
    requests: int
    tokens: int
    nano: int

    @property
    def what(self) -> str:
        return KINDS[self.kind][0]

    @property
    def fix(self) -> str:
        return KINDS[self.kind][1]

    @property
    def code(self) -> str:
        """The fix for that client."""
        return code_for(self.kind, self.client)


@dataclass(frozen=True)
class KeyHygiene:
    """One key: all its served requests, how many were looked at, and its waste, dearest first."""

    key: uuid.UUID | None
    label: str
    requests: int
    looked: int
    tokens: int
    nano: int
    wastes: list[Waste] = field(default_factory=list)

    @property
    def largest(self) -> Waste | None:
        """What to mend first; sums over kinds would count overlapping savings twice."""
        return max(self.wastes, key=lambda waste: (waste.nano, waste.tokens), default=None)


@dataclass(frozen=True)
class WasteTotals:
    """All keys together, and each, the one that could save most first."""

    whole: KeyHygiene
    keys: list[KeyHygiene]


# By kind: requests, tokens, nano-USD, and the client that had it most often.
Counts = dict[str, tuple[int, int, int, str]]
NONE = (0, 0, 0, OTHER)


def hygiene_read(
    *, actor: Actor, organization: uuid.UUID, start: datetime, end: datetime
) -> WasteTotals:
    """Of hours that begin in [start, end); raises TooMuchToRead."""
    require(actor, Action.REQUEST_VIEW, organization)
    _, _, labels = names_of(organization)
    by_key: dict[uuid.UUID, Counts] = defaultdict(dict)
    whole: Counts = {}
    with bounded_read([organization]):
        rows = HygieneHour.objects.filter(
            organization=organization, hour__gte=start, hour__lt=end
        ).values_list("key", "kind", "client")
        sums = rows.annotate(r=Sum("requests"), t=Sum("tokens"), n=Sum("nano"))
        # Of clients the one that had most is the last, and stays.
        for key, kind, client, *figures in sums.order_by("r"):
            requests, tokens, nano = map(int, figures)
            for counts in (by_key[key], whole):
                before = counts.get(kind, NONE)
                counts[kind] = before[0] + requests, before[1] + tokens, before[2] + nano, client
    found = [_of(key, labels.get(key, PLAYGROUND), counts) for key, counts in by_key.items()]
    found.sort(key=lambda one: (-(one.largest.nano if one.largest else 0), one.label))
    return WasteTotals(_of(None, "", whole), found[:KEYS_MAX])


def _of(key: uuid.UUID | None, label: str, counts: Counts) -> KeyHygiene:
    looked, left_out = counts.get(LOOKED, NONE), counts.get(LEFT_OUT, NONE)
    requests = looked[0] + left_out[0]
    wastes = []
    for kind in KINDS:
        if kind in counts:
            *figures, client = counts[kind]
            scaled = (_scaled(figure, requests, looked[0]) for figure in figures)
            wastes.append(Waste(kind, client, *scaled))
    wastes.sort(key=lambda waste: (-waste.nano, -waste.tokens))
    return KeyHygiene(
        key=key,
        label=label,
        requests=requests,
        looked=looked[0],
        tokens=looked[1] + left_out[1],
        nano=looked[2] + left_out[2],
        wastes=wastes,
    )


def _scaled(figure: int, requests: int, looked: int) -> int:
    return figure * requests // looked if looked else figure


KEPT = timedelta(days=90)
ROWS_DELETED_MAX = 5_000
# In a run each hour: 100 gateways write at most half as much, 5,000 rows each.
BITES_MAX = 200


def hygiene_forget(now: datetime | None = None) -> int:
    """Remove counts older than 90 days, bite by bite; returns how many."""
    keep_from = (now or datetime.now(UTC)) - KEPT

    def bite(rows_max: int) -> int:
        return int(value("SELECT insights_hygiene_forget(%s, %s)", [keep_from, rows_max]))

    return drop_in_bites(bite, rows_max=ROWS_DELETED_MAX, bites_max=BITES_MAX)
