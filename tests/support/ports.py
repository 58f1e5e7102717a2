"""Fakes of the gateway's ports, in memory: small, strict and shared by all gateway tests."""

from __future__ import annotations

from dataclasses import dataclass, field

from controlplane.bridge.limits.buckets import LimitPlan, allowance_of, make_plan, rooms_of
from controlplane.gateway.ports import (
    Allowance,
    ClaimRefused,
    FinishedRequest,
    IdempotencyTicket,
    Inspected,
    KeyStanding,
    LedgerAway,
    ReplayedAnswer,
    Room,
)
from controlplane.gateway.ports_contents import ContentsAway, Rated
from controlplane.gateway.refusal import bad_key
from controlplane.gateway.snapshot import EMPTY, KeyRecord, ModelRecord, ProjectRecord, Snapshot
from controlplane.kernel.clock import wall_s
from controlplane.kernel.contents.kept import KeptContent
from controlplane.kernel.price import Price

KEY = "sk_test"
KEY_ID = "k" * 32
ORGANIZATION = "a" * 32
PROJECT = "b" * 32
PRICE = Price(version=1, input_pico=150_000, cached_pico=30_000, output_pico=600_000)


def make_key(**changes: object) -> KeyRecord:
    """Alice's key: every model, one budget, no rate limit."""
    fields: dict[str, object] = {
        "key_id": "K" * 12,
        "id": KEY_ID,
        "digest": b"",
        "organization": ORGANIZATION,
        "project": PROJECT,
        "label": "alice",
        "expires_at_s": None,
        "revoked": False,
        "models": None,
        "budgets": (ORGANIZATION,),
        "limits_id": KEY_ID,
    }
    return KeyRecord(**{**fields, **changes})  # type: ignore[arg-type]


def make_snapshot(
    model: str, *, safety: str = "off", window: int = 4096, output_max: int = 1024
) -> Snapshot:
    """One model in one project."""
    record = ModelRecord(
        name=model,
        task="generate",
        pool="default",
        context_window=window,
        output_tokens_default=min(64, output_max),
        output_tokens_max=output_max,
        price=PRICE,
        created_s=1_700_000_000,
        owner="sluice",
    )
    project = ProjectRecord(
        id=PROJECT,
        organization=ORGANIZATION,
        safety=safety,  # type: ignore[arg-type]
        salt=b"salt",
    )
    return Snapshot(
        version=1,
        keys={},
        projects={PROJECT: project},
        models={model: record},
        model_names=frozenset({model}),
        rules=(),
    )


@dataclass
class MemoryKeys:
    """Keys by their text."""

    current: Snapshot
    keys: dict[str, KeyRecord] = field(default_factory=lambda: {KEY: make_key()})

    def check(self, presented: str) -> KeyRecord:
        """The key, or 401."""
        record = self.keys.get(presented)
        if record is None:
            raise bad_key("Incorrect API key provided.")
        if record.revoked:
            raise bad_key("This API key has been revoked.")
        if record.expires_at_s is not None and record.expires_at_s <= wall_s():
            raise bad_key("This API key has expired.")
        return record

    def recheck(self, key_id: str) -> KeyRecord | None:
        """The same of a key's public id."""
        found = [text for text, record in self.keys.items() if record.key_id == key_id]
        return self.check(found[0]) if found else None

    def snapshot(self) -> Snapshot:
        """The configuration in force."""
        return self.current


class NoBatches:
    """A project without files and batches."""

    async def ask(self, question: str, **facts: object) -> bytes:
        """No list has anything, and there is no file."""
        return b"[]" if question in ("files", "list") else b"null"


@dataclass
class MemoryLimiter:
    """Counts what a key's own limits allow, with time standing still; or answers as it is told."""

    answer: Allowance | None = None
    taken: list[int] = field(default_factory=list)
    corrections: list[int] = field(default_factory=list)
    under_way: int = 0
    far: bool = False
    levels: dict[bytes, int] = field(default_factory=dict)

    def roomy(self, key: KeyRecord, tokens: int) -> bool:
        """As told."""
        return self.far

    async def take(self, key: KeyRecord, tokens: int) -> Allowance:
        """Note, and count in all limits or in none."""
        self.taken.append(tokens)
        allowance = self.answer or self._count(make_plan(key, EMPTY), tokens)
        self.under_way += allowance.allowed
        return allowance

    async def look(self, key: KeyRecord) -> tuple[Room, ...]:
        """What the limits, or the answer, leave."""
        if self.answer is not None:
            return self.answer.rooms
        plan = make_plan(key, EMPTY)
        return rooms_of(plan, self._levels(plan))

    def release(self, allowance: Allowance) -> None:
        """It is under way no longer."""
        self.under_way -= 1
        for name in allowance.flights:
            self.levels[name] -= 1

    def correct(self, key: KeyRecord, tokens: int) -> None:
        """Note, and count more or less."""
        self.corrections.append(tokens)
        for bucket in make_plan(key, EMPTY).buckets:
            if bucket.dimension == "tokens":
                self.levels[bucket.name] = max(0, self.levels.get(bucket.name, 0) + tokens)

    def _levels(self, plan: LimitPlan) -> list[int]:
        return [self.levels.get(bucket.name, 0) for bucket in plan.buckets]

    def _count(self, plan: LimitPlan, tokens: int) -> Allowance:
        costs = [bucket.cost(tokens) for bucket in plan.buckets]
        for place, bucket in enumerate(plan.buckets):
            if self.levels.get(bucket.name, 0) + costs[place] > bucket.limit:
                return allowance_of(plan, tokens, place + 1, self._levels(plan))
        for bucket, cost in zip(plan.buckets, costs, strict=True):
            self.levels[bucket.name] = self.levels.get(bucket.name, 0) + cost
        return allowance_of(plan, tokens, 0, self._levels(plan))


@dataclass
class MemoryStandings:
    """The standing of one key; others have none."""

    standing: KeyStanding = KeyStanding()
    key: str = KEY_ID
    away: bool = False
    busy: bool = False

    async def of(self, key: str, *, waits: bool = True) -> KeyStanding:
        """As told."""
        if self.away or self.busy and not waits:
            raise LedgerAway
        return self.standing if key == self.key else KeyStanding()


@dataclass
class MemoryClaims:
    """Claims by their id; `done` are those with an answer, None where it is not kept."""

    away: bool = False
    stolen: bool = False
    taken: dict[bytes, IdempotencyTicket] = field(default_factory=dict)
    done: dict[bytes, ReplayedAnswer | None] = field(default_factory=dict)

    async def claim(self, ticket: IdempotencyTicket) -> ReplayedAnswer | None:
        """The first has it."""
        if self.away:
            raise LedgerAway
        first = self.taken.setdefault(ticket.id, ticket)
        if first is ticket:
            return None
        if (first.body_digest, first.secret) != (ticket.body_digest, ticket.secret):
            raise ClaimRefused("mismatch", first.request)
        if ticket.id not in self.done:
            raise ClaimRefused("running", first.request)
        kept = self.done[ticket.id]
        if kept is None:
            raise ClaimRefused("charged", first.request)
        return kept

    async def hold(self, ticket: IdempotencyTicket) -> bool:
        """Whether it is still its own, and nobody has `stolen` it."""
        if self.away:
            raise LedgerAway
        return self._owns(ticket) and not self.stolen

    async def keep(self, ticket: IdempotencyTicket, answer: ReplayedAnswer | None) -> None:
        """Note."""
        if self._owns(ticket) and not self.away:
            self.done[ticket.id] = answer

    async def free(self, ticket: IdempotencyTicket) -> None:
        """Forget, unless it is done."""
        if self._owns(ticket) and not self.away and ticket.id not in self.done:
            del self.taken[ticket.id]

    def _owns(self, ticket: IdempotencyTicket) -> bool:
        owner = self.taken.get(ticket.id)
        return owner is not None and owner.request == ticket.request


@dataclass
class MemoryRecorder:
    """Keeps every record."""

    records: list[FinishedRequest] = field(default_factory=list)

    def record(self, record: FinishedRequest) -> None:
        """Keep."""
        self.records.append(record)


@dataclass
class MemoryHygiene:
    """Requests that were looked at, in order."""

    seen: list[Inspected] = field(default_factory=list)

    def count(self, inspected: Inspected) -> None:
        """Keep it."""
        self.seen.append(inspected)


@dataclass
class MemoryContents:
    """What was said, by project and request; only of those `projects`, where there are any."""

    kept: dict[tuple[str, bytes], KeptContent] = field(default_factory=dict)
    projects: frozenset[str] | None = None
    away: bool = False
    # Receipts of recorded requests, and what was thought of them.
    rateable: dict[tuple[str, bytes], bytes] = field(default_factory=dict)
    ratings: dict[tuple[str, bytes], tuple[int, str]] = field(default_factory=dict)

    def keep(self, content: KeptContent) -> None:
        """Keep, unless there is some."""
        if not self.away and self._keeps(content.project):
            self.kept.setdefault((content.project, content.request), content)

    async def keep_now(self, content: KeptContent) -> None:
        """Keep in place of what there is."""
        self._check()
        if self._keeps(content.project):
            self.kept[content.project, content.request] = content

    async def keep_end(self, content: KeptContent) -> bool:
        """Keep in place of what is in progress."""
        self._check()
        place = content.project, content.request
        found = self.kept.get(place)
        if found is None or found.status != "in_progress":
            return False
        self.kept[place] = content
        return True

    async def read(self, project: str, request: bytes) -> KeptContent | None:
        """What is kept."""
        self._check()
        return self.kept.get((project, request))

    async def delete(self, project: str, request: bytes) -> bool:
        """Forget."""
        self._check()
        return self.kept.pop((project, request), None) is not None

    async def rate(self, project: str, request: bytes, rating: int, comment: str) -> Rated | None:
        """Keep it with one of the `rateable`."""
        self._check()
        receipt = self.rateable.get((project, request))
        if receipt is None:
            return None
        before = self.ratings.get((project, request))
        self.ratings[project, request] = rating, comment
        return Rated(receipt, changed=before is None or before[0] != rating)

    def _keeps(self, project: str) -> bool:
        return self.projects is None or project in self.projects

    def _check(self) -> None:
        if self.away:
            raise ContentsAway


@dataclass
class WordSafety:
    """Scores 1.0 for texts that hold one word."""

    word: str = "idiot"
    away: bool = False
    asked: list[str] = field(default_factory=list)

    async def score(self, text: str) -> float:
        """The score."""
        if self.away:
            raise TimeoutError
        self.asked.append(text)
        return 1.0 if self.word in text else 0.0
