"""Holds on their way to PostgreSQL, and those of this gateway that are open.

After every reconnect the open ones are replayed before new ones are admitted: their commits did not
wait for the disk, so a crash of the server may have lost them.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

import msgspec
import structlog

from controlplane.bridge.postgres import arrays
from controlplane.bridge.postgres.lane import PreparedCall
from controlplane.gateway.ports import BudgetExceeded, Hold, LedgerAway
from controlplane.kernel.clock import monotonic_s

BATCH_MAX = 128
QUEUE_MAX = 20_000
TRIES_MAX = 4
# Deadlock, serialization failure, lock or statement time-out: the same call may succeed.
RETRYABLE = ("40", "55P03", "57014")
FAST = b"hold"
EXACT = b"hold_exact"
_TYPES = (
    b"$1::uuid[],$2::uuid[],$3::uuid[],$4::uuid[],$5::bigint[],$6::text[],$7::int[],"
    b"$8::bigint[],$9::bigint[],$10::bigint[],$11::int[],$12::text[],$13::jsonb[]"
)
# Of end users with budgets of their own: those are made first, in the same call.
USERS = b"_users"
_USERS = b" FROM ledger_user_budgets($%d::uuid[],$%d::uuid[])"
STATEMENTS = {
    FAST: b"SELECT ledger_hold(" + _TYPES + b")",
    EXACT: b"SELECT ledger_hold_exact(" + _TYPES + b",$14::boolean)",
}
STATEMENTS |= {
    FAST + USERS: STATEMENTS[FAST] + _USERS % (14, 15),
    EXACT + USERS: STATEMENTS[EXACT] + _USERS % (15, 16),
}

log = structlog.get_logger(__name__)


class WaitingHold(msgspec.Struct, eq=False):
    hold: Hold
    done: asyncio.Future[None]
    tries: int = 0


class Holds:
    """The source of the hold lane; `give_back` releases a hold that no one waits for any more."""

    def __init__(self, give_back: Callable[[Hold], None]) -> None:
        self._give_back = give_back
        self._waiting: deque[WaitingHold] = deque()
        self._repeats: deque[list[WaitingHold]] = deque()
        self._replays: deque[list[Hold]] = deque()
        self._open: dict[bytes, tuple[Hold, float]] = {}

    @property
    def open_count(self) -> int:
        """Holds of this gateway that are not durably resolved yet."""
        return len(self._open)

    def add(self, hold: Hold) -> asyncio.Future[None]:
        """Queue a hold; raises `LedgerAway` when the queue is full.

        The future tells how it went. Should it be done before, the hold is given back when it
        comes.
        """
        if len(self._waiting) >= QUEUE_MAX:
            raise LedgerAway("too many holds are waiting")
        waiting = WaitingHold(hold, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        return waiting.done

    def resolved(self, request: bytes) -> None:
        """The hold's settlement is durable: it need not be replayed."""
        self._open.pop(request, None)

    def connected(self) -> None:
        """Replay what is open before anything else."""
        now = monotonic_s()
        self._open = {k: entry for k, entry in self._open.items() if entry[1] > now}
        holds = [hold for hold, _ in self._open.values()]
        self._replays = deque(
            holds[start : start + BATCH_MAX] for start in range(0, len(holds), BATCH_MAX)
        )

    def next_call(self) -> PreparedCall | None:
        """Replays, then batches of unknown outcome, then what has arrived."""
        if self._replays:
            return self._replay(self._replays[0])
        if self._repeats:
            return self._call(self._repeats.popleft(), exact=True)
        batch: list[WaitingHold] = []
        while self._waiting and len(batch) < BATCH_MAX:
            waiting = self._waiting.popleft()
            if not waiting.done.done():
                batch.append(waiting)
        return self._call(batch, exact=False) if batch else None

    def _call(self, batch: list[WaitingHold], *, exact: bool) -> PreparedCall:
        flag = b"false" if exact else None
        statement, parameters = _prepared([waiting.hold for waiting in batch], flag)
        return PreparedCall(
            statement=statement,
            parameters=parameters,
            answered=partial(self._answered, batch),
            failed=partial(self._failed, batch),
            lost=partial(self._repeats.appendleft, batch),
        )

    def _answered(self, batch: list[WaitingHold], value: bytes | None) -> None:
        codes = value.decode().split("\n") if value else [""] * len(batch)
        expires_from = monotonic_s()
        for waiting, code in zip(batch, codes, strict=True):
            if code:
                self._refuse(waiting, code)
            elif waiting.done.done():
                self._give_back(waiting.hold)
            else:
                hold = waiting.hold
                self._open[hold.request] = (hold, expires_from + hold.expires_s)
                waiting.done.set_result(None)

    def _refuse(self, waiting: WaitingHold, code: str) -> None:
        scope, _, budget = code.partition(":")
        name = budget.replace("-", "")
        if scope == "unknown" and waiting.hold.users and name == waiting.hold.users[0]:
            self._fail(waiting, BudgetExceeded("users", name))
        elif scope == "unknown":
            # A snapshot and the ledger disagree for a moment; never admit without the limit.
            self._fail(waiting, LedgerAway(f"budget {budget} is not on the ledger"))
        else:
            self._fail(waiting, BudgetExceeded(scope, name))

    def _failed(self, batch: list[WaitingHold], state: str, message: str) -> None:
        """Decide one by one what a whole batch could not; give up on what fails alone."""
        if len(batch) > 1:
            tried_exactly = batch[0].tries > 0
            for waiting in batch:
                waiting.tries += 1
            self._repeats.extend([[waiting] for waiting in batch] if tried_exactly else [batch])
            return
        waiting = batch[0]
        waiting.tries += 1
        if waiting.tries == 1 or (state.startswith(RETRYABLE) and waiting.tries < TRIES_MAX):
            self._repeats.append(batch)
            return
        log.error("hold_failed", sqlstate=state, message=message)
        self._fail(waiting, LedgerAway(message))

    @staticmethod
    def _fail(waiting: WaitingHold, error: Exception) -> None:
        if not waiting.done.done():
            waiting.done.set_exception(error)

    def _replay(self, holds: list[Hold]) -> PreparedCall:
        live = [hold for hold in holds if hold.request in self._open]
        statement, parameters = _prepared(live, b"true")
        return PreparedCall(
            statement=statement,
            parameters=parameters,
            answered=self._replayed,
            failed=self._replay_failed,
            lost=_nothing,
        )

    def _replayed(self, _: bytes | None) -> None:
        self._replays.popleft()

    def _replay_failed(self, state: str, message: str) -> None:
        # Their settlements find them missing and book them then; admitting must not wait for that.
        if not state.startswith(RETRYABLE):
            log.error("replay_failed", sqlstate=state, message=message)
            self._replays.popleft()


def _nothing() -> None:
    """Replays are created again at every connection."""


def _prepared(
    holds: Sequence[Hold], flag: bytes | None
) -> tuple[bytes, Callable[[], list[bytes | None]]]:
    """The statement that books these holds, exactly with a flag, and what makes its parameters."""
    statement, more = (FAST, []) if flag is None else (EXACT, [flag])
    if users := [hold.users for hold in holds if hold.users is not None]:
        statement, ids = statement + USERS, zip(*users, strict=True)
        more += [arrays.plain_array(each) for each in ids]
    return statement, lambda: [*_parameters(holds), *more]


def _parameters(holds: Sequence[Hold]) -> list[bytes | None]:
    return [
        arrays.plain_array([hold.request.hex() for hold in holds]),
        arrays.plain_array([hold.organization for hold in holds]),
        arrays.plain_array([hold.project for hold in holds]),
        arrays.plain_array([hold.key for hold in holds]),
        arrays.int_array([hold.amount_nano for hold in holds]),
        arrays.text_array([hold.model for hold in holds]),
        arrays.int_array([hold.price.version for hold in holds]),
        arrays.int_array([hold.price.input_pico for hold in holds]),
        arrays.int_array([hold.price.cached_pico for hold in holds]),
        arrays.int_array([hold.price.output_pico for hold in holds]),
        arrays.int_array([hold.expires_s for hold in holds]),
        arrays.nested_array([hold.budgets for hold in holds]),
        arrays.json_array([hold.carried for hold in holds]),
    ]
