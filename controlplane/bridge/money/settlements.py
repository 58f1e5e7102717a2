"""Settlements on their way to PostgreSQL: kept until they are durable, whoever still waits.

The lane calls a function that commits without waiting for the disk, so that no hot row is locked
that long, and flushes in the same pipeline before anything is answered. Where no other request of
this gateway is open, no row of it is hot, and the call waits for the disk by itself: one
transaction less.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

import msgspec
import structlog

from controlplane.bridge.postgres.arrays import int_array, nested_array, plain_array, text_array
from controlplane.bridge.postgres.lane import PreparedCall
from controlplane.gateway.ports import LedgerAway, Settlement

BATCH_MAX = 128
QUEUE_MAX = 100_000
ASKS_MAX = 10_000
# A settlement that PostgreSQL refuses even alone is offered again, and again.
STUCK_RETRY_S = 1.0
FAST = b"settle"
ALONE = b"settle_alone"
EXACT = b"settle_exact"
OPEN = b"open"
_TYPES = (
    b"$1::uuid[],$2::uuid[],$3::uuid[],$4::uuid[],$5::bigint[],$6::bigint[],$7::text[],$8::int[],"
    b"$9::bigint[],$10::bigint[],$11::bigint[],$12::text[],$13::text[],$14::text[]"
)
STATEMENTS = {
    FAST: b"SELECT ledger_settle(" + _TYPES + b")",
    ALONE: b"SELECT ledger_settle("
    + _TYPES
    + b") FROM set_config('synchronous_commit', 'on', true)",
    EXACT: b"SELECT ledger_settle_exact(" + _TYPES + b")",
    OPEN: b"SELECT ledger_open($1::uuid)",
}

log = structlog.get_logger(__name__)


class Settling(msgspec.Struct, eq=False):
    """A settlement; `done` is set once it is durable."""

    settlement: Settlement
    done: asyncio.Future[None]
    exactly: bool = False


class Settlements:
    """The source of the settle lane; `resolved` is told of every request that became durable.

    `open_count` says how many holds of this gateway are open, those settled here included.
    """

    def __init__(
        self,
        resolved: Callable[[bytes], None],
        wake: Callable[[], None],
        open_count: Callable[[], int],
    ) -> None:
        self._resolved = resolved
        self._wake = wake
        self._open_count = open_count
        self._waiting: deque[Settling] = deque()
        self._repeats: deque[list[Settling]] = deque()
        self._asks: deque[tuple[bytes, asyncio.Future[bytes | None]]] = deque()
        self._requests: set[bytes] = set()
        self._drained = asyncio.Event()
        self._drained.set()
        self.pending = 0
        self.late = 0

    def add(self, settlement: Settlement) -> asyncio.Future[None]:
        """Queue a settlement; raises `LedgerAway` when the queue is full."""
        if self.pending >= QUEUE_MAX:
            raise LedgerAway("too many settlements are waiting")
        settling = Settling(settlement, asyncio.get_running_loop().create_future())
        self.pending += 1
        self._requests.add(settlement.request)
        self._drained.clear()
        if settlement.exactly:
            # One query decides from the rows which of its budgets are charged.
            settling.exactly = True
            self._repeats.append([settling])
        else:
            self._waiting.append(settling)
        self._wake()
        return settling.done

    def ask(self, request: bytes) -> asyncio.Future[bytes | None]:
        """What the ledger knows of a request, as JSON; raises `LedgerAway` when too many ask."""
        if len(self._asks) >= ASKS_MAX:
            raise LedgerAway("too many questions are waiting")
        answer: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()
        self._asks.append((request, answer))
        self._wake()
        return answer

    def has(self, request: bytes) -> bool:
        return request in self._requests

    async def drained(self) -> None:
        """Returns when every settlement so far is durable."""
        await self._drained.wait()

    def connected(self) -> None:
        """Nothing must come first: every settlement can be repeated."""

    def next_call(self) -> PreparedCall | None:
        """Batches of unknown outcome, then what has arrived, then questions."""
        if self._repeats:
            return self._call(self._repeats.popleft(), EXACT)
        if self._waiting:
            size = min(len(self._waiting), BATCH_MAX)
            batch = [self._waiting.popleft() for _ in range(size)]
            return self._call(batch, ALONE if self._open_count() <= 1 else FAST)
        while self._asks:
            request, answer = self._asks.popleft()
            if not answer.done():
                return self._question(request, answer)
        return None

    def _call(self, batch: list[Settling], statement: bytes) -> PreparedCall:
        return PreparedCall(
            statement=statement,
            parameters=lambda: _parameters([settling.settlement for settling in batch]),
            answered=partial(self._answered, batch),
            failed=partial(self._failed, batch),
            lost=partial(self._repeats.appendleft, batch),
            durable=statement != ALONE,
        )

    def _answered(self, batch: list[Settling], value: bytes | None) -> None:
        self.pending -= len(batch)
        if self.pending == 0:
            self._drained.set()
        if value:
            self.late += value.split(b"\n").count(b"late")
        for settling in batch:
            self._requests.discard(settling.settlement.request)
            self._resolved(settling.settlement.request)
            if not settling.done.done():
                settling.done.set_result(None)

    def _failed(self, batch: list[Settling], state: str, message: str) -> None:
        """First exactly as a batch, then one by one, then each again after a pause."""
        if not batch[0].exactly:
            for settling in batch:
                settling.exactly = True
            self._repeats.append(batch)
        elif len(batch) > 1:
            self._repeats.extend([settling] for settling in batch)
        else:
            request = batch[0].settlement.request.hex()
            log.error("settlement_stuck", request=request, sqlstate=state, message=message)
            asyncio.get_running_loop().call_later(STUCK_RETRY_S, self._again, batch)

    def _again(self, batch: list[Settling]) -> None:
        self._repeats.append(batch)
        self._wake()

    def _question(self, request: bytes, answer: asyncio.Future[bytes | None]) -> PreparedCall:
        def answered(value: bytes | None) -> None:
            if not answer.done():
                answer.set_result(value)

        def failed(state: str, message: str) -> None:
            if not answer.done():
                answer.set_exception(LedgerAway(f"{state} {message}"))

        return PreparedCall(
            statement=OPEN,
            parameters=lambda: [request.hex().encode()],
            answered=answered,
            failed=failed,
            lost=lambda: self._asks.appendleft((request, answer)),
        )


def _parameters(batch: Sequence[Settlement]) -> list[bytes | None]:
    return [
        plain_array([s.request.hex() for s in batch]),
        plain_array([s.organization for s in batch]),
        plain_array([s.project for s in batch]),
        plain_array([s.key for s in batch]),
        int_array([s.held_nano for s in batch]),
        int_array([s.amount_nano for s in batch]),
        text_array([s.model for s in batch]),
        int_array([s.price.version for s in batch]),
        int_array([s.price.input_pico for s in batch]),
        int_array([s.price.cached_pico for s in batch]),
        int_array([s.price.output_pico for s in batch]),
        nested_array(
            [(str(s.counts.uncached), str(s.counts.cached), str(s.counts.output)) for s in batch]
        ),
        plain_array([s.source for s in batch]),
        nested_array([s.budgets for s in batch]),
    ]
