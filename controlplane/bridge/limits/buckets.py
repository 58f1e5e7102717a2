"""Which limits a key's requests count in, and what an answer about them tells."""

from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b

import msgspec

from controlplane.bridge.limits.redis_link import bulk
from controlplane.gateway.ports import Allowance, Dimension, LimitScope, Room
from controlplane.gateway.snapshot import KeyRecord, Limits, ProjectRecord, Snapshot

MINUTE_S = 60.0
DAY_S = 86_400.0
# One hash tag: the script touches several buckets, which a cluster must keep together.
BUCKET_PREFIX = b"sluice:{rate}:"
# What is in progress comes back whenever a request ends: no one can say when.
FLIGHT_RETRY_S = 1.0
PLANS_MAX = 100_000
# A key's id, or with the models and the end user that its request counts by.
Name = str | tuple[str, tuple[str, ...], str]


class LimitBucket(msgspec.Struct, frozen=True):
    """One limit: its name on the wire, its size, what it counts and whose it is.

    `period_s` is how long it takes to be whole again; 0 where it counts requests in progress.
    """

    name: bytes
    wire: bytes
    limit: int
    period_s: float = MINUTE_S
    dimension: Dimension = "requests"
    scope: LimitScope = "key"

    @property
    def rate(self) -> float:
        return self.limit / self.period_s

    def cost(self, tokens: int) -> int:
        """What a request with so many tokens takes."""
        return tokens if self.dimension == "tokens" else 1


class LimitPlan(msgspec.Struct, frozen=True):
    """The buckets that one key's requests are counted in, and what they were made from."""

    key: KeyRecord
    project: ProjectRecord | None
    organization: Limits | None
    buckets: tuple[LimitBucket, ...]
    flights: tuple[LimitBucket, ...]
    flight_names: tuple[bytes, ...]
    # Places of buckets of tokens, and whether no two buckets are of one dimension.
    token_places: tuple[int, ...]
    distinct: bool


def make_plan(key: KeyRecord, snapshot: Snapshot) -> LimitPlan:
    """The limits of the key, its project and its organization."""
    project = snapshot.projects.get(key.project)
    organization = snapshot.organizations.get(key.organization)
    levels: list[tuple[LimitScope, str, Limits]] = [("key", key.limits_id, key.limits)]
    if project is not None:
        levels.append(("project", project.id, project.limits))
    if organization is not None:
        levels.append(("organization", key.organization, organization))
    made = []
    for scope, subject, limits in levels:
        made += _buckets(scope, subject, limits)
        if key.counted is not None:
            made += _narrower(key.counted, project, subject, limits)
    flights = tuple(bucket for bucket in made if not bucket.period_s)
    dimensions = [bucket.dimension for bucket in made]
    return LimitPlan(
        key,
        project,
        organization,
        tuple(made),
        flights,
        flight_names=tuple(bucket.name for bucket in flights),
        token_places=tuple(place for place, name in enumerate(dimensions) if name == "tokens"),
        distinct=len(set(dimensions)) == len(dimensions),
    )


class LimitPlans:
    """Plans of keys as they are asked for, made anew where what they were made from has changed."""

    def __init__(self, snapshot: Callable[[], Snapshot]) -> None:
        self._snapshot = snapshot
        self._made: dict[Name, LimitPlan] = {}
        # Those that were held against the snapshot in force.
        self._checked: dict[Name, LimitPlan] = {}
        self._in_force: Snapshot | None = None

    def of(self, key: KeyRecord) -> LimitPlan:
        snapshot = self._snapshot()
        if snapshot is not self._in_force:
            self._in_force, self._checked = snapshot, {}
        name = key.id if key.counted is None else (key.id, *key.counted)
        plan = self._checked.get(name)
        # Who counts by more than the key makes a record for each request.
        if plan is None or (plan.key is not key and plan.key != key):
            plan = self._checked[name] = self._check(name, key, snapshot)
        return plan

    def _check(self, name: Name, key: KeyRecord, snapshot: Snapshot) -> LimitPlan:
        plan = self._made.get(name)
        if (
            plan is None
            or (plan.key is not key and plan.key != key)
            or plan.project is not snapshot.projects.get(key.project)
            or plan.organization is not snapshot.organizations.get(key.organization)
        ):
            if len(self._made) >= PLANS_MAX:
                self._made.clear()
                self._checked.clear()
            plan = self._made[name] = make_plan(key, snapshot)
        return plan


def _narrower(
    counted: tuple[tuple[str, ...], str],
    project: ProjectRecord | None,
    subject: str,
    limits: Limits,
) -> Iterator[LimitBucket]:
    """Those of the request's end user and models; names tell neither."""
    secret = b"" if project is None else project.salt
    models, user = counted
    parts: list[tuple[LimitScope, str, Limits | None]] = [
        *(("model", model, limits.models.get(model)) for model in models),
        ("user", user, limits.per_user),
    ]
    for scope, text, own in parts:
        if own is not None:
            name = blake2b(f"{subject} {text}".encode(), key=secret, digest_size=16).hexdigest()
            yield from _buckets(scope, f"{subject}:{name}", own)


def _buckets(scope: LimitScope, subject: str, limits: Limits) -> list[LimitBucket]:
    wanted: tuple[tuple[Dimension, int | None, float], ...] = (
        ("requests", limits.requests_per_min, MINUTE_S),
        ("tokens", limits.tokens_per_min, MINUTE_S),
        ("requests-day", limits.requests_per_day, DAY_S),
        ("concurrency", limits.concurrency, 0.0),
    )
    made = []
    for dimension, limit, period_s in wanted:
        if limit is not None:
            name = BUCKET_PREFIX + f"{scope}:{subject}:{dimension}".encode("ascii")
            made.append(LimitBucket(name, bulk(name), limit, period_s, dimension, scope))
    return made


def allowance_of(
    plan: LimitPlan, tokens: int, refused: int, levels: Sequence[float], gateways: int = 1
) -> Allowance:
    """The tightest bucket of each kind speaks for it. A cost above the whole limit never fits.

    `refused` is the place of the bucket that refused, from 1; 0: none.
    """
    if plan.distinct and not refused:
        found = rooms_of(plan, levels, gateways)
        return Allowance(allowed=True, rooms=found, flights=plan.flight_names)
    rooms: dict[Dimension, Room] = {}
    for bucket, level in zip(plan.buckets, levels, strict=True):
        room = _room(bucket, level, gateways)
        tightest = rooms.get(bucket.dimension)
        if tightest is None or room.remaining < tightest.remaining:
            rooms[bucket.dimension] = room
    if not refused:
        return Allowance(allowed=True, rooms=tuple(rooms.values()), flights=plan.flight_names)
    bucket, level = plan.buckets[refused - 1], levels[refused - 1]
    wait_s = FLIGHT_RETRY_S
    if bucket.period_s:
        share = bucket.limit / gateways
        wait_s = (level + bucket.cost(tokens) - share) / share * bucket.period_s
    refusing = _room(bucket, level, gateways)
    rooms[bucket.dimension] = refusing
    return Allowance(
        allowed=False, rooms=tuple(rooms.values()), refused_by=refusing, retry_after_s=wait_s
    )


def rooms_of(plan: LimitPlan, levels: Sequence[float], gateways: int = 1) -> tuple[Room, ...]:
    rooms = zip(plan.buckets, levels, strict=True)
    return tuple([_room(bucket, level, gateways) for bucket, level in rooms])


def _room(bucket: LimitBucket, level: float, gateways: int) -> Room:
    # Levels of flights come as if the whole limit were shared, wherever they were counted.
    share = bucket.limit / gateways if bucket.period_s else bucket.limit
    return Room(
        bucket.dimension,
        bucket.scope,
        bucket.limit,
        max(0, int(share - level)),
        level / share * bucket.period_s,
    )
