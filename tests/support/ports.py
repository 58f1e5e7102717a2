"""Fakes of the gateway's ports, in memory: small, strict and shared by all gateway tests."""

from __future__ import annotations

from dataclasses import dataclass, field

from controlplane.gateway.ports import (
    Allowance,
    BudgetExceeded,
    ClaimRefused,
    Hold,
    Inspected,
    KeptAnswer,
    LedgerAway,
    RequestRecord,
    Room,
    Settlement,
    Standing,
    Ticket,
)
from controlplane.gateway.refusal import bad_key
from controlplane.gateway.snapshot import KeyRecord, ModelRecord, ProjectRecord, Snapshot
from controlplane.kernel.price import Price
from inference.contract.frames import Report

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
        version=1, keys={}, projects={PROJECT: project}, models={model: record}, rules=()
    )


@dataclass
class MemoryKeys:
    """Keys by their text."""

    current: Snapshot
    keys: dict[str, KeyRecord] = field(default_factory=lambda: {KEY: make_key()})

    def check(self, presented: str) -> KeyRecord:
        """The key, or 401."""
        if presented not in self.keys:
            raise bad_key("Incorrect API key provided.")
        return self.keys[presented]

    def snapshot(self) -> Snapshot:
        """The configuration in force."""
        return self.current


@dataclass
class MemoryLimiter:
    """Lets everything pass unless told otherwise."""

    answer: Allowance = field(default_factory=lambda: Allowance(allowed=True))
    taken: list[int] = field(default_factory=list)
    given_back: list[int] = field(default_factory=list)
    under_way: int = 0
    far: bool = False

    def roomy(self, key: KeyRecord, tokens: int) -> bool:
        """As told."""
        return self.far

    async def take(self, key: KeyRecord, tokens: int) -> Allowance:
        """Note and answer."""
        self.taken.append(tokens)
        self.under_way += self.answer.allowed
        return self.answer

    async def look(self, key: KeyRecord) -> tuple[Room, ...]:
        """What the answer leaves."""
        return self.answer.rooms

    def release(self, allowance: Allowance) -> None:
        """Note."""
        self.under_way -= 1

    def give_back(self, key: KeyRecord, tokens: int) -> None:
        """Note."""
        self.given_back.append(tokens)


@dataclass
class MemoryStandings:
    """One standing for all keys."""

    standing: Standing = Standing()
    away: bool = False

    async def of(self, key: str) -> Standing:
        """As told."""
        if self.away:
            raise LedgerAway
        return self.standing


@dataclass
class MemoryLedger:
    """One balance. Every hold is resolved once or the test fails."""

    room_nano: int = 10**12
    away: bool = False
    away_at_settle: bool = False
    held: dict[bytes, Hold] = field(default_factory=dict)
    open: dict[bytes, Hold] = field(default_factory=dict)
    settled: dict[bytes, Settlement] = field(default_factory=dict)
    reports: list[Report] = field(default_factory=list)

    async def hold(self, hold: Hold) -> None:
        """Reserve."""
        if self.away:
            raise LedgerAway
        if hold.amount_nano > self.room_nano:
            raise BudgetExceeded("organization", hold.budgets[0])
        assert hold.request not in self.held, "held twice"
        self.held[hold.request] = self.open[hold.request] = hold

    def release(self, hold: Hold) -> None:
        """Resolve at no charge."""
        del self.open[hold.request]

    async def settle(self, settlement: Settlement) -> None:
        """Resolve."""
        if self.away or self.away_at_settle:
            raise LedgerAway
        assert settlement.request not in self.settled, "settled twice"
        assert self.open.pop(settlement.request).amount_nano == settlement.held_nano
        self.settled[settlement.request] = settlement

    async def settle_report(self, report: Report) -> bool:
        """Note."""
        self.reports.append(report)
        return True


@dataclass
class MemoryClaims:
    """Claims by their id; `done` are those with an answer, None where it is not kept."""

    away: bool = False
    stolen: bool = False
    taken: dict[bytes, Ticket] = field(default_factory=dict)
    done: dict[bytes, KeptAnswer | None] = field(default_factory=dict)

    async def claim(self, ticket: Ticket) -> KeptAnswer | None:
        """The first has it."""
        if self.away:
            raise LedgerAway
        first = self.taken.setdefault(ticket.id, ticket)
        if first is ticket:
            return None
        if first.body_digest != ticket.body_digest:
            raise ClaimRefused("mismatch", first.request)
        if ticket.id not in self.done:
            raise ClaimRefused("running", first.request)
        kept = self.done[ticket.id]
        if kept is None:
            raise ClaimRefused("charged", first.request)
        return kept

    async def hold(self, ticket: Ticket) -> bool:
        """As told."""
        return not self.stolen

    async def keep(self, ticket: Ticket, answer: KeptAnswer | None) -> None:
        """Note."""
        assert self.taken[ticket.id] is ticket and ticket.id not in self.done
        self.done[ticket.id] = answer

    async def free(self, ticket: Ticket) -> None:
        """Forget."""
        assert self.taken.pop(ticket.id) is ticket


@dataclass
class MemoryRecorder:
    """Keeps every record."""

    records: list[RequestRecord] = field(default_factory=list)

    def record(self, record: RequestRecord) -> None:
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
class WordSafety:
    """Scores 1.0 for texts that hold one word."""

    word: str = "idiot"
    asked: list[str] = field(default_factory=list)

    async def score(self, text: str) -> float:
        """The score."""
        self.asked.append(text)
        return 1.0 if self.word in text else 0.0
