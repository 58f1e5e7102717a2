"""What the API answers about the fleet: its forms, and how they are filled."""

from datetime import datetime
from typing import Any, TypedDict

from controlplane.core.answers import answer_of
from controlplane.fleet.models import EnrolmentToken, ModelDigest
from controlplane.fleet.overview import NodeView
from controlplane.fleet.signals import Signal
from controlplane.kernel.ids import EnrolmentTokenId, ModelDigestId


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
    what another has asked.
    """

    name: str
    state: str
    reason: str
    region: str
    engine: Any
    device: Any
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
    """A pool with its models and nodes; `separate_caches` is what it demands of these."""

    separate_caches: bool
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
        "models": signal.view.models,
        "nodes": [node_json(node) for node in signal.view.nodes],
    }


def token_json(row: EnrolmentToken) -> TokenJson:
    """A token for programs, without what it opens."""
    return answer_of(TokenJson, row, models=row.allowed_models)


def digest_json(row: ModelDigest) -> DigestJson:
    return answer_of(DigestJson, row)
