"""The fleet as pages, API, metrics and the driver see it: pools, their nodes, and their load now.

Put together from what staff decided, what nodes said of themselves, and what gateways told within
the last seconds. The autoscaling signal of every pool is evaluated by whoever reads it and kept in
the database: any number of readers see one signal, which moves by `scaling.scale_next`.
"""

import uuid
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import transaction

from controlplane.catalog.models import PlanMode, Pool
from controlplane.catalog.selectors import model_list, pool_list
from controlplane.catalog.warm import nodes_min_at, windows_from
from controlplane.core.audit.entries import Actor
from controlplane.core.permissions import Action
from controlplane.fleet.models import (
    DigestState,
    GatewayQueue,
    ModelDigest,
    Node,
    NodeConnection,
    NodeCredential,
    NodeState,
    NodeStatus,
    PoolPlan,
    PoolScale,
)
from controlplane.fleet.scaling import SETTLE_S, PoolLoad, Scale, nodes_wanted, scale_next
from controlplane.fleet.selectors import NODES_SHOWN_MAX
from controlplane.tenants.access import require

# A gateway tells every two seconds; after this its word counts for nothing.
FRESH_S = 10.0
MS_PER_S = 1000
SHARES_CACHE = "its pool wants tenants' prefix caches kept apart, which it cannot do"
FRESHNESS_COUNTS = ("rows_waiting", "rows_dropped", "series_dropped")


@dataclass(frozen=True)
class NodeView:
    """One node. `undecided` are the models whose digest waits for staff or was refused.

    `links` are the facts that each live gateway told, by gateway.
    """

    node: Node
    allowed_models: list[str] | None
    undecided: dict[str, DigestState]
    unknown_models: list[str]
    links: dict[str, dict[str, Any]]
    state: str
    reason: str
    seen_at: datetime | None

    @property
    def shares_cache(self) -> bool:
        """It cannot keep tenants' prefix caches apart."""
        return self.node.facts.get("separates_tenants") is False

    @property
    def path(self) -> dict[str, Any]:
        """How it computes: the fields of `ComputePath`; empty where it told none."""
        return self.node.facts.get("path") or {}

    @property
    def ready(self) -> bool:
        return self.state == "ready"

    @property
    def serves(self) -> list[str]:
        """Models of the catalog that it offers and may serve."""
        refused = {*self.undecided, *self.unknown_models}
        return [name for name in self.node.facts.get("models", []) if name not in refused]

    def total(self, fact: str) -> int:
        """A figure summed over gateways: credits, active."""
        return sum(int(facts.get(fact, 0)) for facts in self.links.values())

    def latest(self, fact: str) -> int | None:
        """A figure of the node's own, of which every gateway hears: running, kv_free_blocks."""
        return next((facts[fact] for facts in self.links.values() if fact in facts), None)

    def share(self, fact: str) -> float | None:
        """A part of a ceiling: decode_share, prefill_share; None where it told none."""
        told = (facts.get(fact) for facts in self.links.values())
        return next((float(share) for share in told if share is not None), None)

    @property
    def kv_share(self) -> float | None:
        """Used part of its KV cache; None where it has told none."""
        free, blocks = self.latest("kv_free_blocks"), self.latest("kv_blocks")
        return None if free is None or not blocks else 1 - free / blocks

    @property
    def breaker(self) -> str:
        """The worst of its breakers: open, half_open or closed; empty without a link."""
        seen = {str(facts.get("breaker", "")) for facts in self.links.values()}
        return next((state for state in ("open", "half_open", "closed") if state in seen), "")


@dataclass(frozen=True)
class PoolView:
    pool: Pool
    nodes: list[NodeView]
    models: list[str]
    load: PoolLoad
    plan: PoolPlan | None = None


def fleet_view(*, actor: Actor, now: datetime) -> list[PoolView]:
    """All pools by name; a constant number of queries."""
    require(actor, Action.FLEET_VIEW)
    served, pools = model_list(), pool_list()
    nodes: dict[str, list[NodeView]] = defaultdict(list)
    for view in nodes_of_models(now, {model.name for model in served}):
        nodes[view.node.pool].append(view)
    waiting, unmet = waiting_by_pool(now)
    plans = {plan.pool_id: plan for plan in PoolPlan.objects.filter(until__gt=now)}
    views = []
    for pool in pools:
        models = [model.name for model in served if model.pool == pool.name]
        load = _load(nodes[pool.name], waiting[pool.name], unmet=pool.name in unmet)
        views.append(PoolView(pool, nodes[pool.name], models, load, plans.get(pool.id)))
    return views


def places_served(now: datetime, known_models: set[str]) -> frozenset[tuple[str, str]]:
    """Models, each with a pool in which a node may serve it now."""
    views = nodes_of_models(now, known_models)
    return frozenset((name, view.node.pool) for view in views if view.ready for name in view.serves)


def waiting_by_model(now: datetime) -> Counter[str]:
    found: Counter[str] = Counter()
    for queue in _queues(now):
        found.update(queue.get("models", {}))
    return found


def waiting_by_pool(now: datetime) -> tuple[Counter[str], set[str]]:
    """Requests that wait in all live gateways by the pool that they wait for, and the pools that a
    request has just found without a node.
    """
    found: Counter[str] = Counter()
    unmet: set[str] = set()
    for queue in _queues(now):
        found.update(queue.get("pools", {}))
        unmet.update(queue.get("unmet", []))
    return found, unmet


def waiting_of(organization: uuid.UUID, now: datetime) -> tuple[int, float]:
    """An organization's requests that wait in all live gateways, and the longest wait in seconds.

    The caller has seen to it that the viewer is a member.
    """
    found = [queue.get("tenants", {}).get(organization.hex, (0, 0)) for queue in _queues(now)]
    oldest_ms = max((oldest_ms for _, oldest_ms in found), default=0)
    return sum(waiting for waiting, _ in found), oldest_ms / MS_PER_S


def limits_alone(now: datetime) -> int:
    """How many live gateways enforce their share of the limits alone, since Redis is down."""
    return sum(queue.get("limits_shared") is False for queue in _queues(now))


@dataclass(frozen=True)
class Freshness:
    """How well one gateway's figures reach the pages.

    `seen_at` is when it last told, `written_s_ago` how long before that it had written series, and
    `rows_waiting` what it had not written yet. Dropped rows and series are counted since it began.
    """

    gateway: str
    seen_at: datetime
    written_s_ago: float | None
    rows_waiting: int
    rows_dropped: int
    series_dropped: int

    def age_s(self, now: datetime) -> float:
        """How old the newest series of this gateway may be, in seconds."""
        return (now - self.seen_at).total_seconds() + (self.written_s_ago or 0.0)


def freshness(*, actor: Actor) -> list[Freshness]:
    """Every gateway that told within the last minute, the one longest silent first, for staff."""
    require(actor, Action.FLEET_VIEW)
    found = []
    for queue in GatewayQueue.objects.order_by("seen_at"):
        told = queue.waiting.get("recorder", {})
        counts = [int(told.get(name, 0)) for name in FRESHNESS_COUNTS]
        found.append(Freshness(queue.gateway, queue.seen_at, told.get("written_s_ago"), *counts))
    return found


def _queues(now: datetime) -> list[dict[str, Any]]:
    fresh = now - timedelta(seconds=FRESH_S)
    return list(GatewayQueue.objects.filter(seen_at__gt=fresh).values_list("waiting", flat=True))


def nodes_of_models(now: datetime, known_models: set[str]) -> list[NodeView]:
    """All nodes by name, as they stand now, where these models are in the catalog."""
    separate = set(Pool.objects.filter(separate_caches=True).values_list("name", flat=True))
    rows = list(
        Node.objects.exclude(standing=NodeStatus.REMOVED).order_by("name")[:NODES_SHOWN_MAX]
    )
    digests = {(row.model, row.digest): DigestState(row.state) for row in ModelDigest.objects.all()}
    allowed = {
        row.node_id: row.allowed_models
        for row in NodeCredential.objects.filter(revoked_at=None).order_by("id")
    }
    links: dict[Any, dict[str, dict[str, Any]]] = defaultdict(dict)
    seen: dict[Any, datetime] = {}
    fresh = now - timedelta(seconds=FRESH_S)
    for link in NodeConnection.objects.filter(seen_at__gt=fresh).order_by("gateway"):
        links[link.node_id][link.gateway] = link.facts
        seen[link.node_id] = max(link.seen_at, seen.get(link.node_id, link.seen_at))
    views = []
    for node in rows:
        offers = node.facts.get("offers", [])
        undecided = _undecided(offers, known_models, digests)
        unknown = [each["model"] for each in offers if each["model"] not in known_models]
        state, reason = _state(node, links[node.id], [*undecided, *unknown], now)
        last_seen = seen.get(node.id, node.last_seen_at)
        view = NodeView(
            node, allowed.get(node.id), undecided, unknown, links[node.id], state, reason, last_seen
        )
        staying = view.state in ("leaving", "ready") and node.state != NodeState.DRAINING
        if staying and view.shares_cache and node.pool in separate:
            view = replace(view, state="held", reason=SHARES_CACHE)
        views.append(view)
    return views


def _undecided(
    offers: list[dict[str, str]], known: set[str], digests: dict[tuple[str, str], DigestState]
) -> dict[str, DigestState]:
    """Models of the catalog whose digest is not approved, and what it is instead."""
    states = {
        each["model"]: digests.get((each["model"], each["digest"]), DigestState.WAITING)
        for each in offers
        if each["model"] in known
    }
    return {name: state for name, state in states.items() if state != DigestState.APPROVED}


def _state(
    node: Node, links: dict[str, dict[str, Any]], unserved: list[str], now: datetime
) -> tuple[str, str]:
    """One word, and why, for a reader who may know nothing of the node."""
    if node.quarantined_until is not None and node.quarantined_until > now:
        return "quarantined", node.quarantine_reason
    if node.standing == NodeStatus.PENDING:
        return "pending", "waits for your approval"
    if node.standing == NodeStatus.DRAINING:
        active = sum(int(facts.get("active", 0)) for facts in links.values())
        return ("draining", f"{active} still running") if active else ("drained", "takes no jobs")
    if not links:
        if node.state == NodeState.NEW:
            return "new", "was never connected"
        return "away", str(node.facts.get("reason", "") or "no gateway has it")
    if unserved and len(unserved) >= len(node.facts.get("offers", [])):
        return "held", "nothing that it offers is approved"
    if node.state == NodeState.DRAINING or not any(f.get("takes_jobs") for f in links.values()):
        return "leaving", "its own process is ending"
    return "ready", ""


def _load(nodes: list[NodeView], waiting: int, *, unmet: bool) -> PoolLoad:
    ready = [view for view in nodes if view.ready]
    shares = [share for view in ready if (share := view.kv_share) is not None]
    return PoolLoad(
        nodes_ready=len(ready),
        credits=sum(view.total("credits") for view in ready),
        in_flight=sum(view.total("active") for view in nodes),
        waiting=waiting,
        kv_share=sum(shares) / len(shares) if shares else 0.0,
        unmet=unmet,
    )


@dataclass(frozen=True)
class Signal:
    """A pool with its wished number of nodes and the least of them that is kept warm now."""

    view: PoolView
    desired: int
    nodes_min: int

    @property
    def pool(self) -> Pool:
        return self.view.pool

    @property
    def load(self) -> PoolLoad:
        return self.view.load

    @property
    def plan(self) -> PoolPlan | None:
        """The latest plan that is still good, whoever follows it."""
        return self.view.plan


def signals(*, actor: Actor, now: datetime) -> list[Signal]:
    """One for each pool, by name; moves the memory of the signal on.

    A plan that is followed asks for nodes beside the load: what did not foresee the load must not
    leave it waiting.
    """
    return [signal_of(view, now) for view in fleet_view(actor=actor, now=now)]


def signal_of(view: PoolView, now: datetime) -> Signal:
    pool = view.pool
    least = nodes_min_at(pool.nodes_min, windows_from(pool.warm_schedule), now)
    wanted, settle_s = nodes_wanted(view.load, nodes_min=least, nodes_max=pool.nodes_max), SETTLE_S
    if view.plan is not None and pool.plan_mode != PlanMode.ADVICE:
        wanted = max(wanted, min(view.plan.nodes, pool.nodes_max))
        settle_s = max(settle_s, view.plan.settle_s)
    return Signal(view, _remember(pool, wanted, now, settle_s), least)


def _remember(pool: Pool, wanted: int, now: datetime, settle_s: float) -> int:
    before = _remembered(pool)
    # Read by many and often, while it seldom moves: most readers need no lock.
    if before is not None and scale_next(before, wanted, now.timestamp(), settle_s) == before:
        return min(before.desired, pool.nodes_max)
    with transaction.atomic():
        # The pool's row is the lock: two readers make one step after the other.
        Pool.objects.select_for_update().only("id").get(id=pool.id)
        before = _remembered(pool)
        after = scale_next(before, wanted, now.timestamp(), settle_s)
        # What is wanted has its bounds already; what is remembered may be of older ones.
        desired = min(after.desired, pool.nodes_max)
        since = after.low_since_s
        PoolScale.objects.update_or_create(
            pool=pool,
            defaults={
                "desired": desired,
                "low_since": None if since is None else datetime.fromtimestamp(since, UTC),
                "low_peak": after.low_peak,
                "evaluated_at": now,
            },
        )
    return desired


def _remembered(pool: Pool) -> Scale | None:
    row = PoolScale.objects.filter(pool=pool).first()
    if row is None:
        return None
    since = row.low_since
    return Scale(
        desired=row.desired, low_since_s=since.timestamp() if since else None, low_peak=row.low_peak
    )
