"""The Limiter port: token buckets and flights in Redis, shared by all gateways, one script call per
batch.

Whatever arrives while a call is in flight goes together with the next one. Redis down, or slower
than `redis_link.REPLY` lets it: this gateway's share of each limit, until Redis answers again. Keys
without limits never get here.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec
import structlog

from controlplane.bridge.limits import buckets as rate_buckets
from controlplane.bridge.limits.flights import Flights
from controlplane.bridge.limits.rate_share import Adjustment, Division, Gateways, RateShares, Take
from controlplane.bridge.limits.redis_link import REPLY, RedisLink, ScriptPlace, bulk, keep_link
from controlplane.gateway.nodes.measured.times import Bound, LearnedBound
from controlplane.gateway.ports import Allowance, Room
from controlplane.gateway.snapshot import KeyRecord, Snapshot
from controlplane.kernel.clock import monotonic_s
from controlplane.kernel.tasks import end

BATCH_MAX = 256
TAKES_WAITING_MAX = 10_000
ADJUSTMENTS_MAX = 100_000
# Up to this fill, other gateways will hardly have used the rest since it was last seen.
ROOMY_SHARE = 0.5
# Well within the time for which the script takes a gateway for present.
PRESENCE_S = 1.0
_PRESENCE = bulk(rate_buckets.BUCKET_PREFIX + b"gateways")
MILLI = 1_000
SCRIPT = (Path(__file__).parent / "limiter.lua").read_bytes()
UNLIMITED = Allowance(allowed=True)
CROWDED = Allowance(allowed=False, retry_after_s=1.0)

_encode = msgspec.msgpack.Encoder().encode
_log = structlog.get_logger(__name__)


class RedisLimiter:
    """One per event loop."""

    def __init__(
        self,
        url: str,
        *,
        snapshot: Callable[[], Snapshot],
        gateways: Gateways,
        reply: Bound = REPLY,
    ) -> None:
        self._place = ScriptPlace(url, SCRIPT, LearnedBound(reply))
        self._gateways = gateways
        self._link: RedisLink | None = None
        self._busy = False
        self._waiting: list[Take] = []
        self._adjustments: dict[bytes, Adjustment] = {}
        self._shares = RateShares()
        self._flights = Flights()
        self._presence_due = True
        self._plan = rate_buckets.LimitPlans(snapshot).of
        self._task: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._ready = asyncio.Event()

    @property
    def shared(self) -> bool:
        return self._link is not None

    def start(self) -> None:
        self._shares.begin(monotonic_s())
        link = keep_link(self._place, self._serve, lambda: self._lost([]))
        self._task = asyncio.create_task(link, name="limiter")

    async def wait_shared(self, seconds_max: float) -> bool:
        """Give Redis a moment at the start; False where limits begin divided."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds_max):
                await self._ready.wait()
        return self.shared

    async def close(self) -> None:
        await end(self._task)

    async def take(self, key: KeyRecord, tokens: int) -> Allowance:
        """Count one request and its tokens in all its buckets, or in none."""
        plan = self._plan(key)
        if not plan.buckets:
            return UNLIMITED
        take = Take(plan, tokens, self._loop.create_future())
        if self._link is None:
            return self._take_locally(take)
        if len(self._waiting) >= TAKES_WAITING_MAX or (plan.flights and self._flights.full):
            return CROWDED
        levels = await self._levels(take)
        if levels is None:
            return self._take_locally(take)
        in_units = [level / MILLI for level in levels[1:]]
        return rate_buckets.allowance_of(plan, tokens, levels[0], in_units)

    async def look(self, key: KeyRecord) -> tuple[Room, ...]:
        """What each of its limits leaves; counts nothing."""
        plan = self._plan(key)
        if not plan.buckets:
            return ()
        take = Take(plan, 0, self._loop.create_future(), look=True)
        levels = await self._levels(take) if self._link is not None else None
        if levels is not None:
            return rate_buckets.rooms_of(plan, [level / MILLI for level in levels[1:]])
        now_s, division = monotonic_s(), self._gateways.division()
        if not division.gateways:
            return rate_buckets.rooms_of(plan, [bucket.limit for bucket in plan.buckets])
        local = [self._level(bucket, division, now_s) for bucket in plan.buckets]
        return rate_buckets.rooms_of(plan, local, division.gateways)

    async def _levels(self, take: Take) -> list[int] | None:
        """What Redis answers, None where it does not."""
        self._waiting.append(take)
        if not self._busy:
            self._flush()
        try:
            return await take.answer
        except asyncio.CancelledError:
            # It may have been counted in this very turn of the loop.
            if take.answer.done() and not take.answer.cancelled():
                self._abandon(take, take.answer.result())
            raise

    def _abandon(self, take: Take, levels: list[int] | None) -> None:
        if levels is not None and not levels[0] and not take.look:
            self._flights.ended([bucket.name for bucket in take.plan.flights])

    def release(self, allowance: Allowance) -> None:
        """The request is over; Redis learns of it in the next call, which may be made for that."""
        if allowance.flights:
            self._flights.ended(allowance.flights)
            self._nudge()

    def roomy(self, key: KeyRecord, tokens: int) -> bool:
        """Redis will be asked, and each bucket was last seen far enough from its limit."""
        buckets = self._plan(key).buckets
        if self._link is None or not buckets:
            return False
        now_s = monotonic_s()
        for bucket in buckets:
            level = self._shares.seen(bucket, now_s) if bucket.period_s else self._under_way(bucket)
            if level is None or level + bucket.cost(tokens) > bucket.limit * ROOMY_SHARE:
                return False
        return True

    def _under_way(self, bucket: rate_buckets.LimitBucket) -> float:
        """At least how many are, as far as this gateway can know."""
        return self._flights.own(bucket) * max(1, self._gateways.living())

    def correct(self, key: KeyRecord, tokens: int) -> None:
        """Add tokens or give them back; they travel with the next batch.

        A bucket may hold more than its limit then: nothing is admitted until that has leaked.
        """
        plan = self._plan(key)
        for place in plan.token_places if tokens else ():
            self._adjust(Adjustment(plan.buckets[place], float(tokens), 0.0))

    def _adjust(self, change: Adjustment) -> None:
        if self._link is None:
            division = self._gateways.division()
            if division.gateways:
                self._shares.add(change.bucket, change.units, division, monotonic_s())
            return
        name = change.bucket.name
        before = self._adjustments.get(name)
        if before is not None:
            least = max(before.level_least, change.level_least)
            change = Adjustment(change.bucket, before.units + change.units, least)
        elif len(self._adjustments) >= ADJUSTMENTS_MAX:
            return
        self._adjustments[name] = change

    def _nudge(self) -> None:
        """Call now, if nothing is called and nothing waits to be."""
        if self._link is not None and not self._busy:
            self._flush()

    def _flush(self) -> None:
        link = self._link
        if link is None or not link.open:
            self._lost([])
            return
        # Who was cancelled while it waited must not be counted for a moment even.
        waiting = [take for take in self._waiting if not take.answer.done()]
        batch, self._waiting = waiting[:BATCH_MAX], waiting[BATCH_MAX:]
        changes = self._next_adjustments()
        wires: list[bytes] = []
        places: dict[bytes, int] = {}

        def place(bucket: rate_buckets.LimitBucket) -> int:
            found = places.get(bucket.name)
            if found is None:
                wires.append(bucket.wire)
                found = places[bucket.name] = len(wires)
            return found

        adjusted = [
            [place(c.bucket), c.bucket.limit, c.bucket.period_s, c.units, c.level_least]
            for c in changes
        ]
        asked = []
        flying = {bucket.name: bucket for bucket in self._flights.to_state()}
        plain: dict[int, list[float]] = {}
        for take in batch:
            plan, request = take.plan, plain.get(id(take.plan))
            if request is None or take.look:
                request = []
                for bucket in plan.buckets:
                    request += (place(bucket), bucket.limit, bucket.period_s, take.cost(bucket))
                flying.update((bucket.name, bucket) for bucket in plan.flights)
                if not take.look:
                    plain[id(plan)] = request
            else:
                # Requests with the same limits differ in their tokens alone.
                request = request.copy()
                for each in plan.token_places:
                    request[4 * each + 3] = take.tokens
            asked.append(request)
        stated = list(flying.values())
        flights: list[object] = []
        if stated or self._presence_due or self._flights.whole_due:
            flights, self._presence_due = self._statement(stated, place), False
            wires.append(_PRESENCE)
            flights[3] = len(wires)
        self._busy = True
        link.call(
            wires,
            _encode((adjusted, asked, flights)),
            lambda reply: self._answered(batch, stated, reply),
        )

    def _statement(
        self,
        stated: list[rate_buckets.LimitBucket],
        place: Callable[[rate_buckets.LimitBucket], int],
    ) -> list[object]:
        """What the script hears of this gateway; the place of the presence is not known yet."""
        now_s, division = monotonic_s(), self._gateways.division()
        rows = [
            (place(bucket), self._flights.own(bucket), self._flights.cap(bucket, division, now_s))
            for bucket in stated
        ]
        whole = int(self._flights.completes)
        return [self._gateways.instance, self._gateways.living(), whole, 0, rows]

    def _next_adjustments(self) -> list[Adjustment]:
        changes = self._adjustments
        if len(changes) <= BATCH_MAX:
            self._adjustments = {}
            return list(changes.values())
        return [changes.pop(name) for name in list(changes)[:BATCH_MAX]]

    def _answered(
        self, batch: list[Take], stated: list[rate_buckets.LimitBucket], reply: list[int] | None
    ) -> None:
        self._busy = False
        if reply is None:
            self._lost(batch)
            return
        now_s = monotonic_s()
        start = 0
        last: dict[int, tuple[rate_buckets.LimitPlan, list[int]]] = {}
        for take in batch:
            plan = take.plan
            end = start + 1 + len(plan.buckets)
            levels = reply[start:end]
            self._take_answered(take, levels)
            # The last of a plan comes last, whatever other plans share of its buckets.
            last.pop(id(plan), None)
            last[id(plan)] = plan, levels
            start = end
        for plan, levels in last.values():
            for bucket, level in zip(plan.buckets, levels[1:], strict=True):
                if bucket.period_s:
                    self._shares.saw(bucket, level / MILLI, now_s)
        if start < len(reply):
            self._flights.heard(reply[start], now_s)
            self._flights.stated(stated)
        if self._waiting or self._flights.news:
            self._flush()

    def _take_answered(self, take: Take, levels: list[int]) -> None:
        flights, waits = take.plan.flights, not take.answer.done()
        if flights and not levels[0] and not take.look:
            if waits:
                self._flights.began(flights)
            else:
                self._flights.counted_wrong(flights)
        if waits:
            take.answer.set_result(levels)

    def _lost(self, batch: list[Take]) -> None:
        self._link = None
        now_s = monotonic_s()
        self._shares.begin(now_s)
        self._flights.lost(now_s)
        waiting, self._waiting = self._waiting, []
        for take in (*batch, *waiting):
            if not take.answer.done():
                take.answer.set_result(None)

    def _take_locally(self, take: Take) -> Allowance:
        now_s, division, plan = monotonic_s(), self._gateways.division(), take.plan
        gateways = division.gateways
        if not gateways:
            return CROWDED
        levels = [self._level(bucket, division, now_s) for bucket in plan.buckets]
        refused = 0
        for number, (bucket, level) in enumerate(zip(plan.buckets, levels, strict=True), 1):
            share = bucket.limit / gateways if bucket.period_s else bucket.limit
            if level + take.cost(bucket) > share:
                refused = number
                break
        if not refused:
            self._flights.began(plan.flights)
            levels = [
                self._shares.add(bucket, take.cost(bucket), division, now_s)
                if bucket.period_s
                else level + 1
                for bucket, level in zip(plan.buckets, levels, strict=True)
            ]
        return rate_buckets.allowance_of(plan, take.tokens, refused, levels, gateways)

    def _level(self, bucket: rate_buckets.LimitBucket, division: Division, now_s: float) -> float:
        if bucket.period_s:
            return self._shares.level(bucket, division, now_s)
        cap = self._flights.cap(bucket, division, now_s)
        return bucket.limit - cap + self._flights.own(bucket)

    async def _serve(self, link: RedisLink) -> None:
        await self._hand_over(link)
        while not link.closed.done():
            self._presence_due = True
            self._nudge()
            await asyncio.wait([link.closed], timeout=PRESENCE_S)

    async def _hand_over(self, link: RedisLink) -> None:
        """Tell Redis what was counted here in the meantime; only then is it asked again."""
        now_s = monotonic_s()
        while news := self._shares.adjustments(now_s):
            for first in range(0, len(news), BATCH_MAX):
                part = news[first : first + BATCH_MAX]
                await _tell(link, part)
                self._shares.told(part, now_s)
            now_s = monotonic_s()
        self._shares.end()
        self._link = link
        self._ready.set()
        _log.info("limits are shared through redis")


async def _tell(link: RedisLink, changes: list[Adjustment]) -> None:
    heard: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def answered(reply: list[int] | None) -> None:
        if not heard.done():
            heard.set_result(reply is not None)

    rows = [
        [n, c.bucket.limit, c.bucket.period_s, c.units, c.level_least]
        for n, c in enumerate(changes, 1)
    ]
    link.call([change.bucket.wire for change in changes], _encode((rows, (), ())), answered)
    if not await heard:
        raise ConnectionError("lost while handing over")
