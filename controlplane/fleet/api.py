"""The fleet under /api/fleet/: pools, nodes, digests, enrolment, and the signal for autoscalers."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, TypedDict

import msgspec
from django.utils import timezone
from rest_framework.response import Response

from controlplane.catalog.pools import pool_draft, pool_set
from controlplane.catalog.selectors import pool_find
from controlplane.core.answers import Changed, answer_of
from controlplane.core.api.callers import bearer
from controlplane.core.api.schema import Whole, operation
from controlplane.core.api.throttles import DoorThrottle
from controlplane.core.api.views import ApiView, failed
from controlplane.core.audit.entries import OPERATOR
from controlplane.core.scrape import may_scrape
from controlplane.fleet import services
from controlplane.fleet.models import EnrolmentToken, ModelDigest, Node
from controlplane.fleet.overview import NodeView, Signal, signals
from controlplane.fleet.selectors import digest_list, fleet_get, token_list
from controlplane.fleet.services import digest_decide
from controlplane.kernel.ids import EnrolmentTokenId, ModelDigestId, public_id

ACTIONS: dict[str, Callable[..., bool]] = {
    "approve": services.node_approve,
    "drain": services.node_drain,
    "undrain": services.node_undrain,
    "remove": services.node_remove,
    "forgive": services.node_forgive,
}
DECISIONS = {"approve": True, "refuse": False}


class SignalJson(TypedDict):
    """A pool's load; `desired` is what an autoscaler takes."""

    pool: str
    task: str
    desired: int
    nodes_min: int
    nodes_max: int
    ready: int
    queue_depth: int
    in_flight: int
    utilization: float
    kv_used: float


class NodeJson(TypedDict):
    """A node, with what it has told of itself.

    `separates_tenants` is false where tenants share its prefix cache: timing tells one of them
    what another has asked. `path` is what its engine computes with, why that is slow, and the rates
    of one request that ran alone at its start; null where its engine does not say.
    """

    name: str
    state: str
    reason: str
    region: str
    engine: Any
    device: Any
    path: dict[str, Any] | None
    release: Any
    separates_tenants: Any
    models: list[Any]
    allowed_models: list[str] | None
    undecided: dict[str, Any]
    credits: int
    in_flight: int
    kv_used: float | None
    breaker: Any
    cold_start_ms: Any
    gateways: list[str]
    last_seen_at: datetime | None


class PoolJson(SignalJson):
    """A pool with its models and nodes; `separate_caches` is what it demands of these.

    `planned` are nodes of its latest plan, which `plan_mode` says who follows; null without one.
    """

    separate_caches: bool
    plan_mode: str
    planned: int | None
    plan_reasons: list[str]
    models: list[str]
    nodes: list[NodeJson]


class PoolNamed(TypedDict):
    """The pool that was made or changed."""

    pool: str


class NodeChangedJson(TypedDict):
    """`changed` is false where there was nothing to change."""

    node: str
    changed: bool


class NodeModelsJson(TypedDict):
    """What a node may serve; null for any."""

    node: str
    models: list[str] | None


class DigestJson(TypedDict):
    """A tokenizer and template that a node has offered for a model."""

    id: ModelDigestId
    model: str
    digest: str
    state: str
    offered_by: str


class TokenJson(TypedDict):
    """A token, without what it opens."""

    id: EnrolmentTokenId
    redacted: str
    pool: str
    models: list[str] | None
    approved: bool
    expires_at: datetime


class NewTokenJson(TokenJson):
    """A token with its secret, which only this answer has."""

    token: str


class EnrolledJson(TypedDict):
    """A node's own credential, which only this answer has."""

    credential: str
    approved: bool


def signal_json(signal: Signal) -> SignalJson:
    """A pool's signal; `desired` is what an autoscaler takes."""
    load = signal.load
    return {
        "pool": signal.pool.name,
        "task": signal.pool.task,
        "desired": signal.desired,
        "nodes_min": signal.nodes_min,
        "nodes_max": signal.pool.nodes_max,
        "ready": load.nodes_ready,
        "queue_depth": load.waiting,
        "in_flight": load.in_flight,
        "utilization": round(load.busy_share, 4),
        "kv_used": round(load.kv_share, 4),
    }


def node_json(view: NodeView) -> NodeJson:
    facts = view.node.facts
    return answer_of(
        NodeJson,
        view,
        name=view.node.name,
        region=view.node.region,
        engine=facts.get("engine"),
        device=facts.get("device"),
        path=view.path or None,
        release=facts.get("release"),
        separates_tenants=facts.get("separates_tenants"),
        models=facts.get("models", []),
        credits=view.total("credits"),
        in_flight=view.total("active"),
        kv_used=view.kv_share,
        cold_start_ms=facts.get("cold_start_ms"),
        gateways=sorted(view.links),
        last_seen_at=view.seen_at,
    )


def pool_json(signal: Signal) -> PoolJson:
    return {
        **signal_json(signal),
        "separate_caches": signal.pool.separate_caches,
        "plan_mode": signal.pool.plan_mode,
        "planned": signal.plan.nodes if signal.plan else None,
        "plan_reasons": list(signal.plan.reasons) if signal.plan else [],
        "models": signal.view.models,
        "nodes": [node_json(node) for node in signal.view.nodes],
    }


def token_json(row: EnrolmentToken) -> TokenJson:
    return answer_of(TokenJson, row, models=row.allowed_models)


def digest_json(row: ModelDigest) -> DigestJson:
    return answer_of(DigestJson, row)


class Nothing(msgspec.Struct, forbid_unknown_fields=True):
    """An empty body."""


class DrainBody(msgspec.Struct, forbid_unknown_fields=True):
    """How long running jobs may take."""

    deadline_s: int = services.DRAIN_S_DEFAULT


class ModelsBody(msgspec.Struct, forbid_unknown_fields=True):
    """Models that a node may serve; null for any."""

    models: list[str] | None


class TokenBody(msgspec.Struct, forbid_unknown_fields=True):
    """What a token lets in."""

    pool: str
    models: list[str] | None = None
    approved: bool = False
    life_hours: int = services.LIFE_HOURS_DEFAULT


class EnrolBody(msgspec.Struct, forbid_unknown_fields=True):
    """What a node sends for its credential."""

    token: str
    name: str
    pool: str


class PoolBody(msgspec.Struct, forbid_unknown_fields=True):
    """A pool's values; what is left out keeps its value, or is a new pool's default."""

    task: str | msgspec.UnsetType = msgspec.UNSET
    role: str | msgspec.UnsetType = msgspec.UNSET
    nodes_min: int | msgspec.UnsetType = msgspec.UNSET
    nodes_max: int | msgspec.UnsetType = msgspec.UNSET
    card_hour_micro: int | msgspec.UnsetType = msgspec.UNSET
    cards_per_node: int | msgspec.UnsetType = msgspec.UNSET
    separate_caches: bool | msgspec.UnsetType = msgspec.UNSET
    plan_mode: str | msgspec.UnsetType = msgspec.UNSET
    warm_schedule: list[dict[str, Any]] | msgspec.UnsetType = msgspec.UNSET


class Pools(ApiView, at="api/fleet/pools"):
    @operation(list_of=Whole(PoolJson))
    def get(self) -> Response:
        """List pools. Staff only."""
        found = signals(actor=self.actor(), now=timezone.now())
        return self.listed(found, pool_json, "pool")


class OnePool(ApiView, at="api/fleet/pools/<str:name>"):
    @operation(body=PoolBody, answer=PoolNamed)
    def put(self, asked: PoolBody, name: str) -> Response:
        """Set a pool, except the command of the local driver. Staff only."""
        given = msgspec.structs.asdict(asked)
        known = pool_find(name=name)
        values = {field: value for field, value in given.items() if value is not msgspec.UNSET}
        pool = pool_set(actor=self.actor(), draft=pool_draft(name, values))
        return Response({"pool": pool.name}, status=200 if known else 201)


class Desired(ApiView, at="api/fleet/pools/<str:name>/desired"):
    authentication_classes = ()

    @operation(answer=SignalJson)
    def get(self, name: str) -> Response:
        """Get the desired number of nodes; needs the metrics token or the operator token."""
        if not may_read_metrics(self.request):
            return failed(401, "Send the metrics token as a bearer token.")
        now = timezone.now()
        found = [each for each in signals(actor=OPERATOR, now=now) if each.pool.name == name]
        return Response(signal_json(found[0])) if found else failed(404, "Pool not found.")


class NodeAction(ApiView):
    @operation(body=DrainBody, answer=NodeChangedJson, step_up=True)
    def post(self, name: str, action: str) -> NodeChangedJson:
        """Approve, drain, resume, release or remove a node; `changed` is false for no change."""
        node, actor = fleet_get(Node, user=self.actor(), name=name), self.actor()
        more: dict[str, Any] = {}
        if action == "drain":
            more["deadline_s"] = self.body(DrainBody).deadline_s
        else:
            self.body(Nothing)
        changed = ACTIONS[action](actor=actor, node=node, **more)
        return {"node": node.name, "changed": changed}


class NodeModels(ApiView, at="api/fleet/nodes/<path:name>/models"):
    @operation(body=ModelsBody, answer=NodeModelsJson, step_up=True)
    def put(self, name: str) -> NodeModelsJson:
        """Set the models that a node may serve. Staff only."""
        node, models = fleet_get(Node, user=self.actor(), name=name), self.body(ModelsBody).models
        services.node_allow(actor=self.actor(), node=node, models=models)
        return {"node": node.name, "models": models}


class Digests(ApiView, at="api/fleet/digests"):
    @operation(list_of=Whole(DigestJson))
    def get(self) -> Response:
        """List tokenizer digests that nodes offer. Staff only."""
        return self.listed(digest_list(user=self.actor()), digest_json)


class DigestDecision(ApiView):
    @operation(answer=Changed, step_up=True)
    def post(self, digest_id: Any, decision: str) -> Changed:
        """Approve or refuse a digest. Staff only."""
        row = fleet_get(ModelDigest, user=self.actor(), id=digest_id)
        changed = digest_decide(actor=self.actor(), digest=row, approved=DECISIONS[decision])
        return {"id": public_id("digest", row.id), "changed": changed}


class Tokens(ApiView, at="api/fleet/tokens"):
    @operation(list_of=Whole(TokenJson))
    def get(self) -> Response:
        """List enrolment tokens without secrets. Staff only."""
        rows = token_list(user=self.actor(), now=timezone.now())
        return self.listed(rows, token_json)

    @operation(body=TokenBody, answer={201: NewTokenJson}, step_up=True)
    def post(self, wanted: TokenBody) -> Response:
        """Create an enrolment token. Staff only."""
        made = services.token_create(
            actor=self.actor(), draft=services.TokenDraft(**msgspec.structs.asdict(wanted))
        )
        body = {**token_json(made.token), "token": made.secret}
        return Response(body, status=201, headers={"Cache-Control": "no-store"})


class OneToken(ApiView, at="api/fleet/tokens/<token:token_id>"):
    @operation(answer=Changed)
    def delete(self, token_id: Any) -> Changed:
        """Revoke an enrolment token. Staff only."""
        row = fleet_get(EnrolmentToken, user=self.actor(), id=token_id)
        changed = services.token_revoke(actor=self.actor(), token=row)
        return {"id": public_id("token", row.id), "changed": changed}


class Enrol(ApiView, at="api/fleet/enrol"):
    authentication_classes = ()
    address_throttle = DoorThrottle

    @operation(body=EnrolBody, answer={201: EnrolledJson})
    def post(self, given: EnrolBody) -> Response:
        """Exchange an enrolment token for a credential, which is returned only once."""
        try:
            made = services.token_redeem(secret=given.token, name=given.name, pool=given.pool)
        except services.EnrolmentRefused:
            return failed(403, "The token is unknown, used or expired. Request a new one.")
        body = {"credential": made.credential, "approved": made.node.standing == "active"}
        return Response(body, status=201, headers={"Cache-Control": "no-store"})


def may_read_metrics(request: Any) -> bool:
    """Whether a request carries the metrics token or the operator's, or is of signed-in staff."""
    given = bearer(request)
    if given is None:
        user = getattr(request, "user", None)
        return bool(user is not None and user.is_active and getattr(user, "is_staff", False))
    return may_scrape(given)
