"""How the hot path reaches the world: small ports. `bridge` implements them, tests may fake them.

Ids of requests are 16 bytes; ids of organizations, projects, keys and budgets 32 hex characters.
"""

import asyncio
from collections.abc import Awaitable, Collection, Mapping
from typing import Any, Literal, Protocol

import msgspec

from controlplane.gateway.snapshot import KeyRecord, Snapshot
from controlplane.kernel.insights.hygiene import WasteFinding
from controlplane.kernel.price import Price, TokenCounts
from controlplane.kernel.tracing import Trace
from inference.contract.frames import Report

CountSource = Literal["gateway", "node", "estimate"]


class LedgerAway(Exception):
    """PostgreSQL cannot be asked now; nothing was admitted or charged."""


class BudgetExceeded(Exception):
    """A budget has no room; `scope` is its own, or `users` where no more end users can have one."""

    def __init__(self, scope: str, budget: str) -> None:
        super().__init__(f"the {scope}'s budget is too low for this request")
        self.scope = scope
        self.budget = budget


class Hold(msgspec.Struct, frozen=True, kw_only=True):
    """Reserve `amount_nano` on every listed budget until settled, released or expired.

    Without budgets it reserves nothing, yet a request can still be billed when its gateway dies.

    The price travels with the hold, so that it can be settled without the gateway that made it;
    `others` are the prices of further models that may serve the request, by name. `user` and
    `labels` are whom its charge is for. `users` are the end user's own budget, one of `budgets`,
    and the one that it is made from where it is not there yet. With `exactly`, some of the budgets
    are of single models, and charged only where that model serves.
    """

    request: bytes
    organization: str
    project: str
    key: str
    budgets: tuple[str, ...]
    amount_nano: int
    model: str
    price: Price
    expires_s: int
    others: dict[str, Price] = {}
    user: str = ""
    labels: dict[str, str] = {}
    users: tuple[str, str] | None = None
    exactly: bool = False

    @property
    def carried(self) -> dict[str, Any]:
        """`others`, and under the name that no model has whom the charge is for."""
        if not self.user and not self.labels:
            return self.others
        return {**self.others, "": {"user": self.user, "labels": self.labels}}


class Settlement(msgspec.Struct, frozen=True, kw_only=True):
    """Resolve a hold. `amount_nano` 0 releases all of it.

    `source` says whose count it is: gateway, node or estimate. `exactly` is as in the hold.
    """

    request: bytes
    organization: str
    project: str
    key: str
    budgets: tuple[str, ...]
    held_nano: int
    amount_nano: int
    counts: TokenCounts
    model: str
    price: Price
    source: CountSource
    exactly: bool = False


Dimension = Literal["requests", "tokens", "requests-day", "concurrency"]
"""What is limited: per minute, per day, or under way at once."""

LimitScope = Literal["key", "project", "organization", "user", "model"]


class Room(msgspec.Struct, frozen=True):
    """What one limit leaves. `reset_s` is the time until it is whole again; 0 for concurrency."""

    dimension: Dimension
    scope: LimitScope
    limit: int
    remaining: int
    reset_s: float


class Allowance(msgspec.Struct, frozen=True, kw_only=True):
    """What the limits say after this request: of each dimension that is limited, the tightest.

    `refused_by` is None where it is allowed, or could not be counted at all. `flights` are the
    counters of requests under way that it is in until the limiter's `release`.
    """

    allowed: bool
    rooms: tuple[Room, ...] = ()
    refused_by: Room | None = None
    retry_after_s: float = 0.0
    flights: tuple[bytes, ...] = ()


class BudgetRoom(msgspec.Struct, frozen=True, kw_only=True):
    """One budget that a key spends from, in the period that runs; amounts in nano-USD.

    `turns_at_s` is the Unix time at which it begins anew; None where it never does.
    """

    scope: Literal["key", "project", "organization", "wallet"]
    limit_nano: int
    spent_nano: int
    held_nano: int
    period: str
    turns_at_s: float | None

    @property
    def left_nano(self) -> int:
        """What a new hold may still take."""
        return max(0, self.limit_nano - self.spent_nano - self.held_nano)


class KeyStanding(msgspec.Struct, frozen=True, kw_only=True):
    """What a key may spend, narrowest budget first, and what it was charged (UTC), in nano-USD."""

    budgets: tuple[BudgetRoom, ...] = ()
    day_nano: int = 0
    week_nano: int = 0
    month_nano: int = 0


class Orders(msgspec.Struct, frozen=True, kw_only=True):
    """What staff and the database say of a node now; a node takes jobs only while it is active.

    `lapsed` says why its credential opens nothing any more; `drain_s` is left to a draining node.
    With `separate_caches` it takes them only if it keeps tenants' prefix caches apart.
    """

    standing: Literal["pending", "active", "draining"] = "active"
    drain_s: float = 0.0
    quarantined: bool = False
    separate_caches: bool = False
    lapsed: str = ""


class NodeIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """Who a node credential belongs to; None as `models` or `pool` allows any.

    `credential` is the public id of the credential, by which it is looked up again; `orders` are
    those at the handshake.
    """

    id: str
    name: str
    models: frozenset[str] | None
    pool: str | None = None
    credential: str = ""
    orders: Orders = Orders()


class IdempotencyTicket(msgspec.Struct, frozen=True):
    """A request's claim on its `Idempotency-Key`. `secret` is the API key as it was presented.

    `id` is the same for every try: of organization, key, route and header, 32 bytes.
    """

    id: bytes
    organization: str
    request: bytes
    body_digest: bytes
    secret: bytes

    def __repr__(self) -> str:
        return f"Ticket({self.id.hex()})"


class ReplayedAnswer(msgspec.Struct, frozen=True):
    """A whole answer as it was sent; `stream` says in which form."""

    request: bytes
    stream: bool
    data: bytes


class ClaimRefused(Exception):
    """Another request has the claim; `first` is its id.

    `verdict` is mismatch (another body), running, or charged (and its answer is not kept).
    """

    def __init__(self, verdict: str, first: bytes) -> None:
        super().__init__(verdict)
        self.verdict = verdict
        self.first = first


class FinishedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One compact row per request, for the waterfall and the histograms.

    `spans` is `call.Spans.to_bytes()`; times are microseconds, `-1` where there was none. Of the
    prompt, `available_tokens` were cached at the best node when it was routed, and
    `captured_tokens` at the one that was chosen; `cached_tokens` is what its engine delivered.
    `client_rtt_us` is a round trip to the client, where no proxy is between. `retries` are the
    nodes that had it and did not finish it. `trace` is there where its spans are to be sent.
    """

    request: bytes
    started_us: int
    organization: str
    project: str
    key: str
    model: str
    route: str
    node: str
    pool: str
    region: str
    operation: str
    status: int
    error_code: str
    finish: str
    stream: bool
    prompt_tokens: int
    available_tokens: int
    captured_tokens: int
    cached_tokens: int
    output_tokens: int
    total_us: int
    ttft_us: int
    inter_token_us: list[int]
    cost_nano: int
    spans: bytes
    receipt: bytes
    safety: str
    client_rtt_us: int = -1
    retries: int = 0
    trace: Trace | None = None
    user: str = ""


class Inspected(msgspec.Struct, frozen=True, kw_only=True):
    """A request for the count of hygiene: what it used, and what of that was for nothing.

    It was served, or refused for now. `looked` is False where the sample left it out; `client` is
    one of `kernel.insights.fixes.CLIENTS`. No text is in it.
    """

    organization: str
    project: str
    key: str
    model: str
    client: str
    tokens: int
    nano: int
    looked: bool
    findings: tuple[WasteFinding, ...]


class Keys(Protocol):
    """Who is calling, from memory."""

    def check(self, presented: str) -> KeyRecord:
        """Return the key's record; raises `refusal.Refusal` (401)."""

    def recheck(self, key_id: str) -> KeyRecord | None:
        """That of a key which was checked before, if there still is one; raises the same."""

    def snapshot(self) -> Snapshot:
        """The configuration in force."""


class Limiter(Protocol):
    """Requests and tokens in a time, and requests at once; shared by all gateways."""

    async def take(self, key: KeyRecord, tokens: int) -> Allowance:
        """Count one request and its estimated tokens, unless a limit is reached."""

    async def look(self, key: KeyRecord) -> tuple[Room, ...]:
        """What each of its limits leaves now; counts nothing."""

    def release(self, allowance: Allowance) -> None:
        """A request that was allowed is over; never blocks."""

    def roomy(self, key: KeyRecord, tokens: int) -> bool:
        """Whether `take` will wait for an answer and most likely be allowed; no promise."""

    def correct(self, key: KeyRecord, tokens: int) -> None:
        """Add what was used beyond the estimate, or give back (below 0) the rest; never blocks."""


class Ledger(Protocol):
    """Holds and settlements, durable when their futures are done."""

    def hold(self, hold: Hold) -> asyncio.Future[None]:
        """Reserve; the call raises `LedgerAway`, the future that or `BudgetExceeded`.

        Of a future that is cancelled nothing stays reserved.
        """

    def release(self, hold: Hold) -> None:
        """Give back a hold that nothing will settle; never blocks."""

    def settle(self, settlement: Settlement) -> Awaitable[None]:
        """Charge or release exactly once, whoever repeats it; raises `LedgerAway`."""

    async def settle_report(self, report: Report, *, served: bool = False) -> bool:
        """Settle from a node's report when no live call does; True once that is decided.

        While the request is `served` elsewhere nothing is settled here.
        """


class Claims(Protocol):
    """Claims on idempotency keys, and the answers that are kept with them."""

    async def claim(self, ticket: IdempotencyTicket) -> ReplayedAnswer | None:
        """None for the first request, its answer for a later one; else raises.

        `ClaimRefused` where there is no answer to give, `LedgerAway` where nobody can tell.
        """

    async def hold(self, ticket: IdempotencyTicket) -> bool:
        """After the hold: whether the claim is still this request's; raises LedgerAway."""

    async def keep(self, ticket: IdempotencyTicket, answer: ReplayedAnswer | None) -> None:
        """It was charged; None where the answer is not whole or too large. Never raises."""

    async def free(self, ticket: IdempotencyTicket) -> None:
        """It was not charged: a retry begins anew. Never raises."""


class Standings(Protocol):
    """Money as the holder of a key may see it; asked by no request that is served."""

    async def of(self, key: str, *, waits: bool = True) -> KeyStanding:
        """What the key of this id may spend and has spent; raises `LedgerAway`.

        Who does not wait gets that, too, where another key's question is being answered.
        """


class Recorder(Protocol):
    """Telemetry, never in the way of money."""

    def record(self, record: FinishedRequest) -> None:
        """Queue a finished request; drops the oldest and counts it when its bound is reached."""


class Hygiene(Protocol):
    """Counts of waste by key and hour."""

    def count(self, inspected: Inspected) -> None:
        """Add one request; never blocks."""


class FleetPort(Protocol):
    """What the database knows of nodes."""

    async def authenticate(self, credential: str) -> NodeIdentity | None:
        """The node behind a credential, or None; raises LedgerAway when it cannot be asked for."""

    async def orders(self, identities: Collection[NodeIdentity]) -> Mapping[NodeIdentity, Orders]:
        """What is said of each of them now; raises LedgerAway."""

    def observe(self, node: str, state: str, facts: dict[str, object]) -> None:
        """Write down a change of a node's state; never blocks."""


class Safety(Protocol):
    """The classifier of the safety layer; a process of its own on each host."""

    async def score(self, text: str) -> float:
        """Probability in [0, 1] that a text is abusive; raises TimeoutError past its bound."""
