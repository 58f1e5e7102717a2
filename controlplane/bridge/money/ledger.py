"""The Ledger port on PostgreSQL: one lane for holds, one for settlements. No Django here."""

import asyncio
from collections import deque
from collections.abc import Callable

import msgspec
import structlog

from controlplane.bridge.money import holds, settlements
from controlplane.bridge.postgres.lane import PostgresLane
from controlplane.gateway.nodes.stream import NO_USAGE
from controlplane.gateway.ports import Hold, LedgerAway, Settlement
from controlplane.kernel.clock import wall_s
from controlplane.kernel.ids import id_time_ms, public_request
from controlplane.kernel.price import Price, TokenCounts, charge_nano, counts_within
from inference.contract.frames import Report


class Deadlines:
    """Fails each future that is not done in time with `LedgerAway`; all get the same time."""

    def __init__(self, seconds_max: Callable[[], float], problem: str) -> None:
        self._seconds_max = seconds_max
        self._problem = problem
        self._watched: deque[tuple[float, asyncio.Future[None]]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, waiting: asyncio.Future[None]) -> None:
        """Begin its time."""
        watched = self._watched
        while watched and watched[0][1].done():
            watched.popleft()
        loop = waiting.get_loop()
        watched.append((loop.time() + self._seconds_max(), waiting))
        if self._timer is None:
            self._timer = loop.call_at(watched[0][0], self._look)

    def _look(self) -> None:
        watched, self._timer = self._watched, None
        while watched:
            end_s, waiting = watched[0]
            if not waiting.done():
                loop = waiting.get_loop()
                if loop.time() < end_s:
                    self._timer = loop.call_at(end_s, self._look)
                    return
                problem = f"{self._problem} within {self._seconds_max():g} s"
                waiting.set_exception(LedgerAway(problem))
            watched.popleft()


HOLD_WAIT_S = 2.0
SETTLE_WAIT_S = 10.0
DRAIN_S = 10.0
# Lines are booked within this time of their request's id; seals rely on it.
LATE_DAYS_MAX = 7
_DAY_MS = 86_400_000
UNFINISHED = frozenset({"cancelled", "error"})

log = structlog.get_logger(__name__)


class Terms(msgspec.Struct):
    """What a hold agreed on, as `ledger_open` tells it."""

    resolution: str | None
    organization: str
    project: str
    key: str
    amount: int
    model: str
    budgets: list[str]
    version: int
    input_pico: int
    cached_pico: int
    output_pico: int
    others: dict[str, Price] | None

    def price_of(self, model: str) -> Price | None:
        """What was agreed on for a model; None where nothing was."""
        if model != self.model:
            return (self.others or {}).get(model)
        return msgspec.convert(self, Price, from_attributes=True)


class PostgresLedger:
    """Implements `ports.Ledger`; `start` returns at once, whether PostgreSQL is there or not."""

    def __init__(
        self, conninfo: str, *, hold_s: float = HOLD_WAIT_S, settle_s: float = SETTLE_WAIT_S
    ) -> None:
        self.hold_s, self.settle_s = hold_s, settle_s
        self._holds = holds.Holds(self.release)
        self._settlements = settlements.Settlements(
            self._holds.resolved, lambda: self._settle_lane.wake(), lambda: self._holds.open_count
        )
        self._hold_lane = PostgresLane("holds", conninfo, self._holds, holds.STATEMENTS)
        self._settle_lane = PostgresLane(
            "settlements", conninfo, self._settlements, settlements.STATEMENTS
        )
        self._hold_deadlines = Deadlines(lambda: self.hold_s, "no answer")
        self._settle_deadlines = Deadlines(lambda: self.settle_s, "not durable")

    @property
    def away(self) -> bool:
        """Whether new requests are refused at once, since PostgreSQL does not answer."""
        return self._hold_lane.known_down

    @property
    def settlements_pending(self) -> int:
        """Settlements that are not durable yet."""
        return self._settlements.pending

    def start(self) -> None:
        self._hold_lane.start()
        self._settle_lane.start()

    async def close(self) -> None:
        """Wait for settlements, within a bound, and cut both lanes."""
        try:
            async with asyncio.timeout(DRAIN_S):
                await self._settlements.drained()
        except TimeoutError:
            # Nodes still have their reports: these charges are settled from them, or expire.
            log.error("settlements_left_behind", count=self._settlements.pending)
        await self._hold_lane.close()
        await self._settle_lane.close()

    def hold(self, hold: Hold) -> asyncio.Future[None]:
        """Reserve on all budgets or none; raises `LedgerAway`, as may the future.

        Who is not told in time, or cancels the future, gets nothing: what comes is given back.
        """
        if hold.amount_nano == 0:
            return _nothing_to_do()
        if self._hold_lane.known_down:
            raise LedgerAway("PostgreSQL does not answer")
        done = self._holds.add(hold)
        self._hold_lane.wake()
        self._hold_deadlines.watch(done)
        return done

    def release(self, hold: Hold) -> None:
        if hold.amount_nano == 0:
            return
        release = Settlement(
            request=hold.request,
            organization=hold.organization,
            project=hold.project,
            key=hold.key,
            budgets=hold.budgets,
            held_nano=hold.amount_nano,
            amount_nano=0,
            counts=TokenCounts(uncached=0, cached=0, output=0),
            model=hold.model,
            price=hold.price,
            source="gateway",
        )
        try:
            self._settlements.add(release)
        except LedgerAway:
            log.error("hold_left_to_expire", request=public_request(hold.request))

    def settle(self, settlement: Settlement) -> asyncio.Future[None]:
        """Durable once the future is done; raises `LedgerAway`, as may the future.

        After the bound of time, or once it is cancelled, the settlement stays queued; where the
        queue is full it is not kept.
        """
        if settlement.held_nano == 0 and settlement.amount_nano == 0:
            return _nothing_to_do()
        done = self._settlements.add(settlement)
        self._settle_deadlines.watch(done)
        return done

    async def settle_report(self, report: Report, *, served: bool = False) -> bool:
        """Price a node's count by the hold's own terms and book it, late if it must be.

        The price is that of the model that served. Never more than was held: the gateway that
        knew better is gone, and a node may claim much. While that gateway lives it is `served`,
        and nothing is booked, since it will settle by its own count; nor is anything while a
        settlement of this process is on its way. A job that was ended before its first token is
        released: only its gateway knew whether the client had left.
        True once the ledger has an answer, also "nothing is known of it"; False when it is away.
        Raises ValueError on counts that cannot be.
        """
        counts = reported_counts(report)
        if self._settlements.has(report.request):
            return False
        if wall_s() * 1000 - id_time_ms(report.request) > LATE_DAYS_MAX * _DAY_MS:
            log.error(
                "report_too_old", request=public_request(report.request), days_max=LATE_DAYS_MAX
            )
            return True
        try:
            terms = await self._terms(report.request)
            if terms is not None and terms.resolution not in (None, "expire"):
                return True
            if served:
                return False
            if terms is None:
                log.warning("report_without_hold", request=public_request(report.request))
            elif (price := terms.price_of(report.model)) is None:
                log.error(
                    "report_of_other_model",
                    request=public_request(report.request),
                    held=terms.model,
                )
            else:
                await self.settle(_reported(report, terms, price, counts))
        except LedgerAway:
            return False
        return True

    async def _terms(self, request: bytes) -> Terms | None:
        try:
            async with asyncio.timeout(self.settle_s):
                answer = await self._settlements.ask(request)
        except TimeoutError:
            raise LedgerAway(f"no answer within {self.settle_s:g} s") from None
        return msgspec.json.decode(answer, type=Terms) if answer else None


def _nothing_to_do() -> asyncio.Future[None]:
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    done.set_result(None)
    return done


def reported_counts(report: Report) -> TokenCounts:
    """What a node's report charges; nothing where its job was ended before the first token."""
    usage = report.usage
    if report.finish in UNFINISHED and not usage.completion_tokens:
        usage = NO_USAGE
    return TokenCounts.from_usage(usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens)


def _reported(report: Report, terms: Terms, price: Price, counts: TokenCounts) -> Settlement:
    claimed_nano = charge_nano(price, counts)
    if claimed_nano > terms.amount:
        log.error(
            "report_over_hold",
            request=public_request(report.request),
            claimed_nano=claimed_nano,
            held_nano=terms.amount,
        )
        counts = counts_within(price, counts, terms.amount)
    return Settlement(
        request=report.request,
        organization=terms.organization.replace("-", ""),
        project=terms.project.replace("-", ""),
        key=terms.key.replace("-", ""),
        budgets=tuple(budget.replace("-", "") for budget in terms.budgets),
        held_nano=terms.amount,
        amount_nano=charge_nano(price, counts),
        counts=counts,
        model=report.model,
        price=price,
        source="estimate" if report.usage.source == "estimate" else "node",
        exactly=bool(terms.others),
    )
