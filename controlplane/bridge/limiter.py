"""The Limiter port: token buckets in Redis, shared by all gateways, one script call per batch.

Whatever arrives while a call is in flight goes together with the next one. Redis away, or slower
than `redis_link.REPLY_S_MAX`: this gateway's share of each limit, until Redis answers again. Keys
without limits never get here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

import hiredis
import msgspec
import structlog

from controlplane.bridge.rate_share import MINUTE_S, Adjustment, Bucket, Division, RateShares
from controlplane.bridge.redis_link import RedisLink, bulk
from controlplane.gateway.ports import Allowance
from controlplane.gateway.snapshot import KeyRecord, ProjectRecord, Snapshot
from controlplane.kernel.clock import monotonic_s

BATCH_MAX = 256
TAKES_WAITING_MAX = 10_000
ADJUSTMENTS_MAX = 100_000
PLANS_MAX = 100_000
# Up to this fill, other gateways will hardly have used the rest since it was last seen.
ROOMY_SHARE = 0.5
RECONNECT_S_MIN = 0.1
RECONNECT_S_MAX = 1.0
# One hash tag: the script touches several buckets, which a cluster must keep together.
BUCKET_PREFIX = b"sluice:{rate}:"
MILLI = 1_000
SCRIPT = (Path(__file__).parent / "limiter.lua").read_bytes()
UNLIMITED = Allowance(allowed=True)
CROWDED = Allowance(allowed=False, dimension="requests", retry_after_s=1.0)

_encode = msgspec.msgpack.Encoder().encode
_log = structlog.get_logger(__name__)


class _Plan(msgspec.Struct, frozen=True):
    """The buckets that one key's requests are counted in, and what they were made from."""

    key: KeyRecord
    project: ProjectRecord | None
    buckets: tuple[Bucket, ...]


class _Take(msgspec.Struct):
    """One request that waits for its answer: None when Redis gave none."""

    plan: _Plan
    tokens: int
    answer: asyncio.Future[list[int] | None]


class RedisLimiter:
    """One per event loop. `division` tells this gateway's part of each limit without Redis."""

    def __init__(
        self, url: str, *, snapshot: Callable[[], Snapshot], division: Callable[[], Division]
    ) -> None:
        self._url = url
        self._snapshot = snapshot
        self._division = division
        self._link: RedisLink | None = None
        self._busy = False
        self._waiting: list[_Take] = []
        self._adjustments: dict[bytes, Adjustment] = {}
        self._shares = RateShares()
        self._plans: dict[str, _Plan] = {}
        self._task: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._ready = asyncio.Event()

    @property
    def shared(self) -> bool:
        """Whether limits are counted in Redis now."""
        return self._link is not None

    def start(self) -> None:
        """Begin to connect; returns at once."""
        self._shares.begin(monotonic_s())
        self._task = asyncio.create_task(self._keep_link(), name="limiter")

    async def wait_shared(self, seconds_max: float) -> bool:
        """Give Redis a moment at the start; False where limits begin divided."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds_max):
                await self._ready.wait()
        return self.shared

    async def close(self) -> None:
        """Stop."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def take(self, key: KeyRecord, tokens: int) -> Allowance:
        """Count one request and its tokens in all its buckets, or in none."""
        plan = self._plan(key)
        if not plan.buckets:
            return UNLIMITED
        if self._link is None:
            return self._take_locally(plan, tokens)
        if len(self._waiting) >= TAKES_WAITING_MAX:
            return CROWDED
        answer: asyncio.Future[list[int] | None] = self._loop.create_future()
        self._waiting.append(_Take(plan, tokens, answer))
        if not self._busy:
            self._flush()
        levels = await answer
        if levels is None:
            return self._take_locally(plan, tokens)
        return _allowance(plan, tokens, levels[0], [level / MILLI for level in levels[1:]])

    def roomy(self, key: KeyRecord, tokens: int) -> bool:
        """Redis will be asked, and each bucket was last seen far enough from its limit."""
        buckets = self._plan(key).buckets
        if self._link is None or not buckets:
            return False
        now_s = monotonic_s()
        for bucket in buckets:
            level = self._shares.seen(bucket, now_s)
            cost = tokens if bucket.counts_tokens else 1
            if level is None or level + cost > bucket.limit * ROOMY_SHARE:
                return False
        return True

    def give_back(self, key: KeyRecord, tokens: int) -> None:
        """Return tokens; they travel with the next batch."""
        for bucket in self._plan(key).buckets:
            if bucket.counts_tokens and tokens > 0:
                self._adjust(Adjustment(bucket, float(-tokens), 0.0))

    def _adjust(self, change: Adjustment) -> None:
        if self._link is None:
            division = self._division()
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

    def _plan(self, key: KeyRecord) -> _Plan:
        plan = self._plans.get(key.id)
        project = self._snapshot().projects.get(key.project)
        if plan is None or plan.key is not key or plan.project is not project:
            if len(self._plans) >= PLANS_MAX:
                self._plans.clear()
            plan = self._plans[key.id] = _Plan(key, project, _buckets(key, project))
        return plan

    def _flush(self) -> None:
        link = self._link
        if link is None or not link.open:
            self._lost([])
            return
        batch, self._waiting = self._waiting[:BATCH_MAX], self._waiting[BATCH_MAX:]
        changes = self._next_adjustments()
        wires: list[bytes] = []
        places: dict[bytes, int] = {}

        def place(bucket: Bucket) -> int:
            found = places.get(bucket.name)
            if found is None:
                wires.append(bucket.wire)
                found = places[bucket.name] = len(wires)
            return found

        adjusted = [[place(c.bucket), c.bucket.limit, c.units, c.level_least] for c in changes]
        asked = []
        for take in batch:
            request: list[int] = []
            for bucket in take.plan.buckets:
                cost = take.tokens if bucket.counts_tokens else 1
                request += (place(bucket), bucket.limit, cost)
            asked.append(request)
        self._busy = True
        link.call(wires, _encode((adjusted, asked)), lambda reply: self._answered(batch, reply))

    def _next_adjustments(self) -> list[Adjustment]:
        changes = self._adjustments
        if len(changes) <= BATCH_MAX:
            self._adjustments = {}
            return list(changes.values())
        return [changes.pop(name) for name in list(changes)[:BATCH_MAX]]

    def _answered(self, batch: list[_Take], reply: list[int] | None) -> None:
        self._busy = False
        if reply is None:
            self._lost(batch)
            return
        now_s = monotonic_s()
        start = 0
        for take in batch:
            end = start + 1 + len(take.plan.buckets)
            levels = reply[start:end]
            start = end
            for bucket, level in zip(take.plan.buckets, levels[1:], strict=True):
                self._shares.saw(bucket, level / MILLI, now_s)
            if not take.answer.done():
                take.answer.set_result(levels)
        if self._waiting:
            self._flush()

    def _lost(self, batch: list[_Take]) -> None:
        self._link = None
        self._shares.begin(monotonic_s())
        waiting, self._waiting = self._waiting, []
        for take in (*batch, *waiting):
            if not take.answer.done():
                take.answer.set_result(None)

    def _take_locally(self, plan: _Plan, tokens: int) -> Allowance:
        now_s, division = monotonic_s(), self._division()
        gateways = division.gateways
        if not gateways:
            return CROWDED
        costs = [tokens if bucket.counts_tokens else 1 for bucket in plan.buckets]
        levels = [self._shares.level(bucket, division, now_s) for bucket in plan.buckets]
        refused = 0
        for number, (bucket, level, cost) in enumerate(
            zip(plan.buckets, levels, costs, strict=True), 1
        ):
            if level + cost > bucket.limit / gateways:
                refused = number
                break
        if not refused:
            levels = [
                self._shares.add(bucket, cost, division, now_s)
                for bucket, cost in zip(plan.buckets, costs, strict=True)
            ]
        return _allowance(plan, tokens, refused, levels, gateways)

    async def _keep_link(self) -> None:
        wait_s = RECONNECT_S_MIN
        while True:
            try:
                link = await RedisLink.connect(self._url, SCRIPT)
                try:
                    await self._hand_over(link)
                    wait_s = RECONNECT_S_MIN
                    await asyncio.shield(link.closed)
                finally:
                    link.close()
            except (OSError, TimeoutError, hiredis.HiredisError) as error:
                _log.info("redis is away; limits are divided", error=type(error).__name__)
            self._lost([])
            await asyncio.sleep(wait_s)
            wait_s = min(RECONNECT_S_MAX, wait_s * 2)

    async def _hand_over(self, link: RedisLink) -> None:
        """Tell Redis what was counted here meanwhile; only then is it asked again."""
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

    rows = [[n, c.bucket.limit, c.units, c.level_least] for n, c in enumerate(changes, 1)]
    link.call([change.bucket.wire for change in changes], _encode((rows, ())), answered)
    if not await heard:
        raise ConnectionError("lost while handing over")


def _buckets(key: KeyRecord, project: ProjectRecord | None) -> tuple[Bucket, ...]:
    limits = [
        (f"key:{key.limits_id}:requests", key.limits.requests_per_min, False),
        (f"key:{key.limits_id}:tokens", key.limits.tokens_per_min, True),
    ]
    if project is not None:
        limits += [
            (f"project:{project.id}:requests", project.limits.requests_per_min, False),
            (f"project:{project.id}:tokens", project.limits.tokens_per_min, True),
        ]
    made = []
    for text, limit, counts_tokens in limits:
        if limit is not None:
            name = BUCKET_PREFIX + text.encode("ascii")
            made.append(Bucket(name, bulk(name), limit, counts_tokens))
    return tuple(made)


def _allowance(
    plan: _Plan, tokens: int, refused: int, levels: Sequence[float], gateways: int = 1
) -> Allowance:
    """The tightest bucket of each kind speaks for it. A cost above the whole limit never fits."""
    requests = _tightest(plan, levels, gateways, counts_tokens=False)
    token = _tightest(plan, levels, gateways, counts_tokens=True)
    retry_after_s = 0.0
    dimension: Literal["requests", "tokens"] | None = None
    if refused:
        bucket = plan.buckets[refused - 1]
        dimension = "tokens" if bucket.counts_tokens else "requests"
        cost = tokens if bucket.counts_tokens else 1
        size = bucket.limit / gateways
        retry_after_s = (levels[refused - 1] + cost - size) / size * MINUTE_S
    return Allowance(
        allowed=not refused,
        dimension=dimension,
        limit_requests=requests[0],
        limit_tokens=token[0],
        remaining_requests=requests[1],
        remaining_tokens=token[1],
        reset_requests_s=requests[2],
        reset_tokens_s=token[2],
        retry_after_s=retry_after_s,
    )


def _tightest(
    plan: _Plan, levels: Sequence[float], gateways: int, *, counts_tokens: bool
) -> tuple[int | None, int | None, float]:
    """Limit, what remains of it, and seconds until it is whole again."""
    limit: int | None = None
    remaining: int | None = None
    reset_s = 0.0
    for bucket, level in zip(plan.buckets, levels, strict=True):
        if bucket.counts_tokens is not counts_tokens:
            continue
        size = bucket.limit / gateways
        room = max(0, int(size - level))
        if remaining is None or room < remaining:
            limit, remaining, reset_s = bucket.limit, room, level / size * MINUTE_S
    return limit, remaining, reset_s
