"""Who counts requests against limits, and one request that waits to be counted."""

import asyncio
from collections.abc import Callable

import msgspec

from controlplane.bridge.limits.buckets import LimitBucket, LimitPlan
from controlplane.bridge.limits.rate_share import Division


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
