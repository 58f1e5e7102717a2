"""Requests in progress in this gateway, per limit on them, and how many it may have on its own.

Redis knows of each gateway what that states of itself, and shares a limit while all that live are
there to state. Apart from the others, a gateway keeps to its part of the limit, and until all that
was in progress before must be over, also to what it had then: together they never pass the limit.
"""

from collections.abc import Iterable
from itertools import islice
from math import inf

from controlplane.bridge.limits.buckets import LimitBucket
from controlplane.bridge.limits.rate_share import Division

# Longer than any request lives, and than Redis takes a gateway that left it for present.
APART_S_MAX = 620.0
# Buckets that this gateway counts in before it takes no further ones, but for takes that wait.
FLIGHTS_MAX = 4_000
# Of those it states so many in one call, beside those of the batch: Redis answers within its time.
STATED_MAX = 500
SHARED, UNKNOWN = 1, -1


class Flights:
    """Counts by the name of their bucket; one per limiter."""

    def __init__(self) -> None:
        self._buckets: dict[bytes, LimitBucket] = {}
        self._own: dict[bytes, int] = {}
        self._news: set[bytes] = set()
        self._then: dict[bytes, int] | None = {}
        self._apart_s = -inf
        self.whole_due = True
        self.completes = False

    @property
    def news(self) -> bool:
        """Whether Redis believes something else than what is so."""
        return self.whole_due or bool(self._news)

    @property
    def full(self) -> bool:
        """Whether no further limit's requests can be counted."""
        return len(self._buckets) >= FLIGHTS_MAX

    def began(self, buckets: Iterable[LimitBucket]) -> None:
        """A request is under way; Redis, where it was asked, has counted it."""
        for bucket in buckets:
            self._buckets[bucket.name] = bucket
            self._own[bucket.name] = self._own.get(bucket.name, 0) + 1

    def ended(self, names: Iterable[bytes]) -> None:
        for name in names:
            self._own[name] -= 1
            self._news.add(name)

    def counted_wrong(self, buckets: Iterable[LimitBucket]) -> None:
        """Redis counted a request that nobody waits for any more."""
        for bucket in buckets:
            self._buckets.setdefault(bucket.name, bucket)
            self._own.setdefault(bucket.name, 0)
            self._news.add(bucket.name)

    def own(self, bucket: LimitBucket) -> int:
        return self._own.get(bucket.name, 0)

    def to_state(self) -> list[LimitBucket]:
        """Buckets to tell Redis of in the next call, which is taken for made.

        Where all of them are due, `completes` says whether they are told with that call.
        """
        wanted = list(islice(self._news, STATED_MAX))
        self._news.difference_update(wanted)
        self.completes = self.whole_due and not self._news
        return [self._buckets[name] for name in wanted]

    def stated(self, buckets: Iterable[LimitBucket]) -> None:
        """Redis has heard of these; what is over there and here is forgotten."""
        for bucket in buckets:
            if not self._own.get(bucket.name) and bucket.name not in self._news:
                self._own.pop(bucket.name, None)
                self._buckets.pop(bucket.name, None)

    def heard(self, standing: int, now_s: float) -> None:
        """What Redis says of this gateway's standing among the others."""
        if standing == UNKNOWN and not self.whole_due:
            self._begin_whole()
        elif standing != UNKNOWN and self.completes:
            self.whole_due = False
        if standing == SHARED:
            self._then = None
        else:
            self.apart(now_s)

    def lost(self, now_s: float) -> None:
        """Redis is down: when it is back, it must hear everything."""
        self._begin_whole()
        self.apart(now_s)

    def apart(self, now_s: float) -> None:
        """From now on this gateway is on its own; a second time in a row changes nothing."""
        if self._then is None:
            self._then, self._apart_s = dict(self._own), now_s

    def _begin_whole(self) -> None:
        self.whole_due = True
        self._news.update(self._own)

    def cap(self, bucket: LimitBucket, division: Division, now_s: float) -> int:
        """How many it may have under way when it cannot share the limit."""
        if division.gateways <= 1:
            return bucket.limit * division.gateways
        share = bucket.limit // division.gateways
        if now_s >= max(self._apart_s, division.since_s) + APART_S_MAX:
            return share
        then = self._own if self._then is None else self._then
        return min(share, then.get(bucket.name, 0))
