"""Whom limits would have refused among recorded requests, and when. In shadow the same is asked of
the requests since its start: counted, not refused.
"""

import uuid
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any
from zoneinfo import ZoneInfo

import msgspec

from controlplane.billing.budgets.models import Budget, BudgetPeriod, BudgetScope
from controlplane.billing.budgets.selectors import budget_list, budget_map
from controlplane.billing.budgets.services import ProjectPart, budget_id
from controlplane.changes.content import LimitPart, LimitsContent
from controlplane.changes.limits import LimitChanges, subject_id
from controlplane.changes.models import ChangeVersion
from controlplane.changes.replay import (
    STORES,
    Allowed,
    Arrival,
    LimitGate,
    Reached,
    Refusals,
    RefusalTally,
    compare,
)
from controlplane.core.permissions import Action
from controlplane.kernel.calendar import period_around
from controlplane.kernel.clock import monotonic_s
from controlplane.kernel.statuses import CLIENT_LEFT, FAILED_FROM
from controlplane.quotas.selectors import limit_list
from controlplane.quotas.services import LimitSet
from controlplane.routing.tallies import GROUPS_SHOWN_MAX, groups_of
from controlplane.routing.traffic import (
    HOURS_DEFAULT,
    READ_S_MAX,
    SETTLE,
    RecordedRequest,
    hours_back,
    read_sample,
)
from controlplane.telemetry.reading import TooMuchToRead
from controlplane.telemetry.selectors import usage_sums
from controlplane.telemetry.selectors_traffic import TrafficRow
from controlplane.telemetry.tiers import HOUR_S, TierRange
from controlplane.tenants.access import allows
from controlplane.tenants.models import ApiKey, Project
from controlplane.tenants.selectors import names_of

REFUSED = 429
NOTES = (
    "Buckets begin empty at the start of the range; a limit per day is only replayed within it.",
    "Gateways count the estimated tokens of a request first and its usage when it ends; here the "
    "usage counts at its start.",
    "Budgets are charged what requests cost; the hold of a running request is more, so that the "
    "last requests before the end of a budget may be refused earlier.",
    "Requests that were refused at the time have no tokens and no cost; clients that are refused "
    "send again, or not, which nobody knows.",
    "Stores write for several requests at once what comes together; here each counts alone.",
    "Limits for a model count the model that served the request, not the one it was sent to first.",
)
Terms = dict[uuid.UUID, dict[LimitPart, Any]]


class RefusedGroup(msgspec.Struct, frozen=True):
    """Requests of one project, key, model or hour, by name."""

    id: str
    name: str
    tally: RefusalTally


class ReachedLimitCount(msgspec.Struct, frozen=True):
    """How often a limit of the draft would refuse, in words: whose, and which kind."""

    of: str
    kind: str
    requests: int


class StoreWrites(msgspec.Struct, frozen=True):
    """What is written for the requests that each set admits: of which store, and what."""

    store: str
    what: str
    before: int
    after: int


class LimitsDryRun(msgspec.Struct, frozen=True):
    """Both sets of limits over [`start`, `end`), whole only if `complete`; the most changed first.

    `first` and `last` are of requests that are refused anew.
    """

    version: int
    start: datetime
    end: datetime
    complete: bool
    total: RefusalTally
    first: datetime | None
    last: datetime | None
    projects: list[RefusedGroup]
    keys: list[RefusedGroup]
    models: list[RefusedGroup]
    hours: list[RefusedGroup]
    reached: list[ReachedLimitCount]
    writes: list[StoreWrites]
    notes: tuple[str, ...] = NOTES


def limits_dry_run(
    changes: LimitChanges, version: ChangeVersion, hours: int = HOURS_DEFAULT
) -> LimitsDryRun:
    """Replay the newest requests of so many hours; raises ValidationError and TooMuchToRead."""
    now = datetime.now(UTC)
    return _replay(changes, version, now - hours_back(hours), now)


def limits_shadow(changes: LimitChanges) -> LimitsDryRun | None:
    """What the change in shadow would have refused since its start; None without one."""
    with changes.seen():
        version = changes.rows.filter(canary_at__isnull=False, state="canary").first()
    if version is None or version.canary_at is None:
        return None
    now = datetime.now(UTC)
    return _replay(changes, version, min(now, version.canary_at + SETTLE), now)


def _replay(
    changes: LimitChanges, version: ChangeVersion, start: datetime, end: datetime
) -> LimitsDryRun:
    organization, content = changes.scope, changes.checked(version)
    sample = read_sample([organization], start, end)
    with changes.seen():
        keys = ApiKey.objects.filter(organization=organization).values_list("id", "limits_of")
        lines = {key: first or key for key, first in keys}
        # Ids tell the order to the millisecond only.
        arrivals = sorted(_arrival(row, lines) for row in sample.rows if _counts(row))
        limits = _limits(changes, content)
        budgets = _budgets(changes, content)
    begun = _Spending(organization, sample.begins, arrivals, lines).begun(budgets)
    before, after = map(LimitGate, limits, begun)
    found = compare(arrivals, before, after)
    writes = [
        StoreWrites(store, what, before.writes[what], after.writes[what])
        for what, store in STORES.items()
    ]
    return _told(version, organization, sample, found, writes)


def _counts(row: TrafficRow) -> bool:
    """Requests that are refused for what is in them do not count."""
    return not FAILED_FROM <= row.status < CLIENT_LEFT or row.status == REFUSED


def _arrival(row: TrafficRow, lines: Mapping[uuid.UUID, uuid.UUID]) -> Arrival:
    line = lines.get(row.key, row.key)
    return Arrival(
        at_s=row.started_at.timestamp(),
        took_s=row.total_us / 1e6,
        tokens=row.prompt_tokens + row.output_tokens,
        nano=row.cost_nano,
        subjects=(line, row.project, row.organization),
        key=row.key,
        model=row.model,
        user=row.end_user,
    )


def _limits(changes: LimitChanges, content: LimitsContent) -> tuple[Terms, Terms]:
    """Those in force, and those as they would be; needs the scope."""
    before: Terms = {}
    for row in limit_list(actor=changes.actor, organization_id=changes.scope):
        limits = LimitSet(*(getattr(row, name) for name in LimitSet._fields))
        before.setdefault(row.subject_id, {})[LimitPart(row.model, row.per_user)] = limits
    after = {subject: dict(parts) for subject, parts in before.items()}
    subjects = changes.subjects(one.of for one in content.limits)
    for entry in content.limits:
        part = LimitPart(entry.model, entry.per_user)
        wanted = LimitSet(*(getattr(entry, name) for name in LimitSet._fields))
        after.setdefault(subject_id(subjects[entry.of]), {})[part] = wanted
    return before, after


def _budgets(changes: LimitChanges, content: LimitsContent) -> tuple[Terms, Terms]:
    """The same of budgets, nothing spent yet; none for those who may not see money."""
    if not allows(changes.actor, Action.LEDGER_VIEW, changes.organization_id):
        return {}, {}
    before: Terms = {}
    for row in budget_list(actor=changes.actor, organization=changes.scope):
        part = LimitPart(row.model or "", row.scope == BudgetScope.USERS)
        terms = Allowed(row.available, row.period, row.zone)
        before.setdefault(row.project or row.id, {})[part] = terms
    after = {subject: dict(parts) for subject, parts in before.items()}
    subjects = changes.subjects(one.of for one in content.budgets)
    for entry in content.budgets:
        parts = after.setdefault(subject_id(subjects[entry.of]), {})
        part = LimitPart(entry.model, entry.per_user)
        parts.pop(part, None)
        if entry.allowance_nano is not None:
            parts[part] = Allowed(entry.allowance_nano, entry.period, entry.zone)
    return before, after


class _Spending:
    """What was spent of budgets before the first arrival, of those that some arrival pays; the
    number of queries does not grow with that of budgets.
    """

    def __init__(
        self,
        organization: uuid.UUID,
        start: datetime,
        arrivals: list[Arrival],
        lines: Mapping[uuid.UUID, uuid.UUID],
    ) -> None:
        self._organization, self._start, self._lines = organization, start, lines
        self._arrived = _by_subject((one.subjects, one.model, one.nano) for one in arrivals)
        self._posted: dict[uuid.UUID, Budget] = {}
        self._since = cache(self._sums)
        self._ends_s = monotonic_s() + READ_S_MAX

    def begun(self, sets: tuple[Terms, ...]) -> list[Terms]:
        """The same budgets, with what of their periods was spent; raises TooMuchToRead."""
        subjects = {subject for subject, _ in self._arrived}
        paid = [
            {subject: parts for subject, parts in terms.items() if subject in subjects}
            for terms in sets
        ]
        wanted = {
            _budget(subject, part)
            for terms in paid
            for subject, parts in terms.items()
            for part in parts
        }
        self._posted = budget_map(organization=self._organization, subjects=wanted)
        return [
            {
                subject: {part: self._begun(subject, part, each) for part, each in parts.items()}
                for subject, parts in terms.items()
            }
            for terms in paid
        ]

    def _begun(self, subject: uuid.UUID, part: LimitPart, terms: Allowed) -> Allowed:
        if part.per_user:
            # Of single end users nothing is known.
            return terms
        began, _ = period_around(terms.period, ZoneInfo(terms.zone), self._start)
        if terms.period != BudgetPeriod.NONE:
            return terms._replace(spent_nano=self._since(began)[subject, part.model])
        found = self._posted.get(_budget(subject, part))
        posted, since = found.posted if found else 0, self._arrived[subject, part.model]
        return terms._replace(spent_nano=max(0, posted - since))

    def _sums(self, began: datetime) -> Counter[tuple[uuid.UUID, str]]:
        """There are as many moments as time zones and periods together."""
        if monotonic_s() > self._ends_s:
            raise TooMuchToRead
        organization, span = self._organization, TierRange(HOUR_S, began, self._start)
        whose = {"organization": organization}
        sums = usage_sums([organization], span, whose, "key", "project", "model")
        return _by_subject(
            ((self._lines.get(key, key), project, organization), model, one.nano)
            for (key, project, model), one in sums.items()
        )


def _by_subject(
    charges: Iterable[tuple[tuple[uuid.UUID, ...], str, int]],
) -> Counter[tuple[uuid.UUID, str]]:
    """Nano-USD by subject, of each model and, without a model, of all."""
    found: Counter[tuple[uuid.UUID, str]] = Counter()
    for subjects, model, nano in charges:
        for subject in subjects:
            found[subject, ""] += nano
            found[subject, model] += nano
    return found


def _budget(subject: uuid.UUID, part: LimitPart) -> uuid.UUID:
    return budget_id(ProjectPart(Project(id=subject), part.model)) if any(part) else subject


def _told(
    version: ChangeVersion,
    organization: uuid.UUID,
    sample: RecordedRequest,
    found: Refusals,
    writes: list[StoreWrites],
) -> LimitsDryRun:
    name, projects, keys = names_of(organization)
    names = {**projects, **keys, organization: name}
    return LimitsDryRun(
        version=version.version,
        start=sample.begins,
        end=sample.end,
        complete=sample.complete,
        total=found.total,
        first=_moment(found.first_s),
        last=_moment(found.last_s),
        projects=groups_of(RefusedGroup, found.projects, projects, "proj"),
        # A Playground token is no key, and has its user's id.
        keys=groups_of(RefusedGroup, found.keys, keys, "key", "Playground / deleted key, "),
        models=groups_of(RefusedGroup, found.models, {}),
        hours=[
            RefusedGroup(str(at), f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M}", tally)
            for at, tally in sorted(found.hours.items())
        ],
        reached=[
            ReachedLimitCount(_whose(one, names), one.kind, count)
            for one, count in found.reached.most_common(GROUPS_SHOWN_MAX)
        ],
        writes=writes,
    )


def _whose(reached: Reached, names: Mapping[uuid.UUID, str]) -> str:
    return f"{names.get(reached.subject, reached.subject)}{reached.part.words}"


def _moment(at_s: float | None) -> datetime | None:
    return None if at_s is None else datetime.fromtimestamp(at_s, UTC)
