"""This gateway's share of every rate limit, counted in memory while Redis is down.

A share is the limit divided by the live gateways. A gateway that was alone goes on from the level
it saw last. Where others count too, or did a while ago, that level says nothing of what they used
since: the share starts with nothing left and refills at its rate, and starts so again whenever the
division changes. So all together never pass the limit, as long as their shares together are never
more than the whole; that is the care of `fleet_gateway_alive`.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec

from controlplane.bridge.limits.buckets import LimitBucket, LimitPlan
from controlplane.kernel.leak import LeakLevel

BUCKETS_SEEN_MAX = 100_000
_FORGET_AT_ONCE = 1_000


class Division(NamedTuple):
    """This gateway counts 1/`gateways` of every limit alone, since then; nothing at 0."""

    gateways: int
    since_s: float


NO_SHARE = Division(0, 0.0)


class _Share(msgspec.Struct):
    """A bucket's local part: what it started with, and what it holds now.

    `carried` was used under divisions before this one, and Redis has not been told of it.
    """

    bucket: LimitBucket
    division: Division
    start: LeakLevel
    held: LeakLevel
    carried: float = 0.0

    @property
    def size(self) -> float:
        return self.bucket.limit / self.division.gateways

    @property
    def rate(self) -> float:
        return self.bucket.rate / self.division.gateways

    def used(self, now_s: float) -> float:
        """What was used here and not told, as far as it has not leaked."""
        here = self.held.leaked(self.rate, now_s) - self.start.leaked(self.rate, now_s)
        return here + self.carried


class Adjustment(msgspec.Struct, frozen=True):
    """A change of a shared bucket outside any request."""

    bucket: LimitBucket
    units: float
    level_least: float


class RateShares:
    """Levels seen while Redis answers, and shares while it does not."""

    def __init__(self) -> None:
        self._seen: OrderedDict[bytes, tuple[LimitBucket, LeakLevel]] = OrderedDict()
        self._shares: dict[bytes, _Share] = {}
        self._away_since_s: float | None = None
        self._told: set[bytes] = set()

    def saw(self, bucket: LimitBucket, level: float, now_s: float) -> None:
        self._seen[bucket.name] = (bucket, LeakLevel(level, now_s))
        if len(self._seen) > BUCKETS_SEEN_MAX:
            for _ in range(_FORGET_AT_ONCE):
                self._seen.popitem(last=False)

    def seen(self, bucket: LimitBucket, now_s: float) -> float | None:
        """How full a shared bucket must be by now, if only this gateway used it since."""
        known = self._seen.get(bucket.name)
        if known is None:
            return None
        seen = known[1]
        level = seen.level - (now_s - seen.at_s) * (bucket.limit / bucket.period_s)
        return level if level > 0.0 else 0.0

    def begin(self, now_s: float) -> None:
        """Redis went away; a second loss in a row changes nothing."""
        if self._away_since_s is None:
            self._away_since_s = now_s

    def level(self, bucket: LimitBucket, division: Division, now_s: float) -> float:
        """How full the share is; there must be one."""
        share = self._share(bucket, division, now_s)
        return share.held.leaked(share.rate, now_s)

    def add(self, bucket: LimitBucket, units: float, division: Division, now_s: float) -> float:
        """Add units (negative gives back); returns how full the share is then."""
        share = self._share(bucket, division, now_s)
        level = max(0.0, share.held.leaked(share.rate, now_s) + units)
        share.held = LeakLevel(level, now_s)
        return level

    def adjustments(self, now_s: float) -> list[Adjustment]:
        """What Redis has not been told of yet: levels it may have lost, and what was used here."""
        news = []
        for name, (bucket, seen) in self._seen.items():
            least = seen.leaked(bucket.rate, now_s)
            if least > 0 and name not in self._told and name not in self._shares:
                news.append(Adjustment(bucket, 0.0, least))
        for name, share in self._shares.items():
            used = share.used(now_s)
            least = self.seen(share.bucket, now_s) or 0.0
            if used or name not in self._told:
                news.append(Adjustment(share.bucket, used, least))
        return news

    def told(self, news: Iterable[Adjustment], now_s: float) -> None:
        """Redis has these adjustments, which were made at `now_s`."""
        for change in news:
            name = change.bucket.name
            self._told.add(name)
            share = self._shares.get(name)
            if share is not None:
                level = share.start.leaked(share.rate, now_s) + change.units - share.carried
                share.start, share.carried = LeakLevel(level, now_s), 0.0

    def end(self) -> None:
        self._shares.clear()
        self._told.clear()
        self._away_since_s = None

    def _share(self, bucket: LimitBucket, division: Division, now_s: float) -> _Share:
        share = self._shares.get(bucket.name)
        if share is None:
            start = self._start(bucket, division, now_s)
            share = self._shares[bucket.name] = _Share(bucket, division, start, start)
        elif share.division != division:
            start = LeakLevel(bucket.limit / division.gateways, division.since_s)
            carried = share.used(now_s)
            share = self._shares[bucket.name] = _Share(bucket, division, start, start, carried)
        return share

    def _start(self, bucket: LimitBucket, division: Division, now_s: float) -> LeakLevel:
        away_s = now_s if self._away_since_s is None else self._away_since_s
        seen = self._seen.get(bucket.name)
        if division.gateways == 1:
            # What others used before this gateway was alone is in the level, or has leaked.
            if division.since_s <= away_s - bucket.period_s:
                return LeakLevel(self.seen(bucket, away_s) or 0.0, away_s)
            if seen is not None and seen[1].at_s >= division.since_s:
                return LeakLevel(self.seen(bucket, away_s) or 0.0, away_s)
        return LeakLevel(bucket.limit / division.gateways, max(away_s, division.since_s))


class Take(msgspec.Struct):
    """One request that waits for its answer: None when Redis gave none. A look costs nothing."""

    plan: LimitPlan
    tokens: int
    answer: asyncio.Future[list[int] | None]
    look: bool = False

    def cost(self, bucket: LimitBucket) -> int:
        return 0 if self.look else bucket.cost(self.tokens)


class Gateways(msgspec.Struct, frozen=True):
    """Who counts: this gateway, how many live, and its part of each limit without Redis."""

    instance: str
    living: Callable[[], int]
    division: Callable[[], Division]
