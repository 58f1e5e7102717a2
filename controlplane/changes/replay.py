"""Recorded requests, once more through limits and budgets: which of them each set would refuse.

Pure. Buckets leak as those of gateways do and are taken all or none; what is in progress ends when
the record says that it did.
"""

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

from controlplane.changes.content import LimitPart
from controlplane.kernel.calendar import period_around
from controlplane.kernel.leak import LeakLevel
from controlplane.quotas.services import LimitSet
from controlplane.routing.tallies import TrafficTally

MINUTE_S, DAY_S, HOUR_S = 60.0, 86_400.0, 3_600
# As gateways ask them, in this order: field, kind in records, and the period; 0 is at once.
DIMENSIONS = (
    ("requests_per_min", "requests", MINUTE_S),
    ("tokens_per_min", "tokens", MINUTE_S),
    ("requests_per_day", "requests-day", DAY_S),
    ("concurrency", "concurrency", 0.0),
)
BUDGET = "budget"
# What is written for requests: the store, and what of it.
COUNTERS, BUDGET_ROWS, LEDGER_LINES = "limit counters", "rows of budgets", "ledger lines"
# Limits that are put right when a request ends.
SETTLED = frozenset({"tokens", "concurrency"})
STORES = {COUNTERS: "Redis", BUDGET_ROWS: "PostgreSQL", LEDGER_LINES: "PostgreSQL"}


class Arrival(NamedTuple):
    """A recorded request; `subjects` are the ids of its key's line, project and organization."""

    at_s: float
    took_s: float
    tokens: int
    nano: int
    subjects: tuple[UUID, ...]
    key: UUID
    model: str
    user: str


class Allowed(NamedTuple):
    """A budget; `spent_nano` is what of the period was spent before the first arrival."""

    allowance_nano: int
    period: str = "none"
    zone: str = "UTC"
    spent_nano: int = 0


class Reached(NamedTuple):
    """What refuses a request: whose limit, of which part of its requests, and which kind."""

    subject: UUID
    part: LimitPart
    kind: str


Limits = Mapping[UUID, Mapping[LimitPart, LimitSet]]
Budgets = Mapping[UUID, Mapping[LimitPart, Allowed]]


@dataclass
class _Bucket:
    """One limit as it fills."""

    limit: int
    period_s: float
    held: LeakLevel = field(default_factory=lambda: LeakLevel(0.0, 0.0))

    def level(self, now_s: float) -> float:
        rate = self.limit / self.period_s if self.period_s else 0.0
        return self.held.leaked(rate, now_s)

    def add(self, units: int, now_s: float) -> None:
        self.held = LeakLevel(self.level(now_s) + units, now_s)


@dataclass
class _Purse:
    """One budget as it is spent; it begins again when its period ends."""

    terms: Allowed
    spent: int
    turns_s: float | None = None

    def room(self, now_s: float) -> int:
        if self.turns_s is None or now_s >= self.turns_s:
            moment = datetime.fromtimestamp(now_s, UTC)
            _, turns = period_around(self.terms.period, ZoneInfo(self.terms.zone), moment)
            self.spent = self.spent if self.turns_s is None else 0
            self.turns_s = turns.timestamp() if turns else float("inf")
        return self.terms.allowance_nano - self.spent


class LimitGate:
    """One set of limits and budgets, while requests arrive in their order."""

    def __init__(self, limits: Limits, budgets: Budgets) -> None:
        self._limits, self._budgets = limits, budgets
        self._buckets: dict[tuple[Reached, str], _Bucket] = {}
        self._purses: dict[tuple[UUID, LimitPart, str], _Purse] = {}
        self._flying: list[tuple[float, int, _Bucket]] = []
        self._count = 0
        self.writes: Counter[str] = Counter()

    def admit(self, arrival: Arrival) -> Reached | None:
        """Count a request, or say what refuses it; then nothing is counted."""
        now_s = arrival.at_s
        while self._flying and self._flying[0][0] <= now_s:
            heapq.heappop(self._flying)[2].add(-1, now_s)
        taken: list[tuple[_Bucket, int]] = []
        asked = list(self._asked(arrival))
        for reached, bucket in asked:
            cost = arrival.tokens if reached.kind == "tokens" else 1
            if bucket.level(now_s) + cost > bucket.limit:
                return reached
            taken.append((bucket, cost))
        purses = list(self._paying(arrival))
        for reached, purse in purses:
            if purse.room(now_s) < arrival.nano or purse.room(now_s) <= 0:
                return reached
        for bucket, cost in taken:
            bucket.add(cost, now_s)
            if not bucket.period_s:
                self._count += 1
                heapq.heappush(self._flying, (now_s + arrival.took_s, self._count, bucket))
        for _, purse in purses:
            purse.spent += arrival.nano
        self._note_writes([reached.kind for reached, _ in asked], len(purses))
        return None

    def _note_writes(self, kinds: list[str], budgets: int) -> None:
        """Tokens and requests in progress are put right at the end, where others count once; a hold
        and its settlement are a line each, and change each budget.
        """
        self.writes[COUNTERS] += len(kinds) + sum(kind in SETTLED for kind in kinds)
        self.writes[BUDGET_ROWS] += 2 * budgets
        self.writes[LEDGER_LINES] += 2

    def _asked(self, arrival: Arrival) -> Iterator[tuple[Reached, _Bucket]]:
        for subject in arrival.subjects:
            for part, limits in self._limits.get(subject, {}).items():
                if part.model not in ("", arrival.model):
                    continue
                user = arrival.user if part.per_user else ""
                for name, kind, period_s in DIMENSIONS:
                    limit = getattr(limits, name)
                    if limit is not None:
                        reached = Reached(subject, part, kind)
                        at = reached, user
                        if at not in self._buckets:
                            self._buckets[at] = _Bucket(limit, period_s)
                        yield reached, self._buckets[at]

    def _paying(self, arrival: Arrival) -> Iterator[tuple[Reached, _Purse]]:
        for subject in arrival.subjects:
            for part, terms in self._budgets.get(subject, {}).items():
                if part.model not in ("", arrival.model):
                    continue
                at = subject, part, arrival.user if part.per_user else ""
                if at not in self._purses:
                    self._purses[at] = _Purse(terms, terms.spent_nano)
                yield Reached(subject, part, BUDGET), self._purses[at]


@dataclass
class RefusalTally(TrafficTally):
    """Those that one set refuses and the other does not are `newly`
    refused or `freed`; `nano` and `tokens` are of those newly refused.
    """

    before: int = 0
    after: int = 0
    newly: int = 0
    freed: int = 0
    tokens: int = 0
    nano: int = 0

    @property
    def change(self) -> tuple[int, ...]:
        return (self.newly + self.freed,)


@dataclass
class Refusals:
    """The same of all, by project, key, model and hour (its first second); and by what refuses."""

    total: RefusalTally = field(default_factory=RefusalTally)
    projects: dict[UUID, RefusalTally] = field(default_factory=dict)
    keys: dict[UUID, RefusalTally] = field(default_factory=dict)
    models: dict[str, RefusalTally] = field(default_factory=dict)
    hours: dict[int, RefusalTally] = field(default_factory=dict)
    reached: Counter[Reached] = field(default_factory=Counter)
    first_s: float | None = None
    last_s: float | None = None


def compare(arrivals: Sequence[Arrival], before: LimitGate, after: LimitGate) -> Refusals:
    """Both sets over the same requests, which come in the order of their arrival."""
    found = Refusals()
    for arrival in arrivals:
        old, new = before.admit(arrival), after.admit(arrival)
        one = RefusalTally(1, old is not None, new is not None)
        if new is not None:
            found.reached[new] += 1
        if old is None and new is not None:
            one.newly, one.tokens, one.nano = 1, arrival.tokens, arrival.nano
            found.first_s = arrival.at_s if found.first_s is None else found.first_s
            found.last_s = arrival.at_s
        one.freed = int(old is not None and new is None)
        for tally in _tallies(found, arrival):
            tally.add(one)
    return found


def _tallies(found: Refusals, arrival: Arrival) -> Iterable[RefusalTally]:
    hour = int(arrival.at_s) // HOUR_S * HOUR_S
    return (
        found.total,
        found.projects.setdefault(arrival.subjects[1], RefusalTally()),
        found.keys.setdefault(arrival.key, RefusalTally()),
        found.models.setdefault(arrival.model, RefusalTally()),
        found.hours.setdefault(hour, RefusalTally()),
    )
