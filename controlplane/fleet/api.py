"""The fleet under /api/fleet/: pools, nodes, digests, enrolment, and the signal for autoscalers."""

from collections.abc import Callable
from typing import Any

import msgspec
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.catalog.pools import pool_draft, pool_set
from controlplane.catalog.selectors import pool_find
from controlplane.core.answers import Changed
from controlplane.core.api.callers import bearer
from controlplane.core.api.schema import Whole, operation
from controlplane.core.api.throttles import DoorThrottle
from controlplane.core.api.views import ApiView, failed
from controlplane.core.audit.entries import OPERATOR
from controlplane.core.scrape import may_scrape
from controlplane.fleet import bodies
from controlplane.fleet.bodies import digest_json, pool_json, signal_json, token_json
from controlplane.fleet.digests import digest_decide
from controlplane.fleet.enrolment import (
    LIFE_HOURS_DEFAULT,
    EnrolmentRefused,
    TokenDraft,
    token_create,
    token_redeem,
    token_revoke,
)
from controlplane.fleet.lives import (
    DRAIN_S_DEFAULT,
    node_allow,
    node_approve,
    node_drain,
    node_forgive,
    node_remove,
    node_undrain,
)
from controlplane.fleet.selectors import digest_get, digest_list, node_get, token_get, token_list
from controlplane.fleet.signals import signals
from controlplane.kernel.ids import public_id

ACTIONS: dict[str, Callable[..., bool]] = {
    "approve": node_approve,
    "drain": node_drain,
    "undrain": node_undrain,
    "remove": node_remove,
    "forgive": node_forgive,
}
DECISIONS = {"approve": True, "refuse": False}


class Nothing(msgspec.Struct, forbid_unknown_fields=True):
    """An empty body."""


class DrainBody(msgspec.Struct, forbid_unknown_fields=True):
    """How long running jobs may take."""

    deadline_s: int = DRAIN_S_DEFAULT


class ModelsBody(msgspec.Struct, forbid_unknown_fields=True):
    """Models that a node may serve; null for any."""

    models: list[str] | None


class TokenBody(msgspec.Struct, forbid_unknown_fields=True):
    """What a token lets in."""

    pool: str
    models: list[str] | None = None
    approved: bool = False
    life_hours: int = LIFE_HOURS_DEFAULT


class EnrolBody(msgspec.Struct, forbid_unknown_fields=True):
    """What a node sends for its credential."""

    token: str
    name: str
    pool: str


class PoolBody(msgspec.Struct, forbid_unknown_fields=True):
    """A pool's values; what is left out keeps its value, or is a new pool's default."""

    task: str | msgspec.UnsetType = msgspec.UNSET
    size_class: str | msgspec.UnsetType = msgspec.UNSET
    role: str | msgspec.UnsetType = msgspec.UNSET
    nodes_min: int | msgspec.UnsetType = msgspec.UNSET
    nodes_max: int | msgspec.UnsetType = msgspec.UNSET
    card_hour_micro: int | msgspec.UnsetType = msgspec.UNSET
    cards_per_node: int | msgspec.UnsetType = msgspec.UNSET
    separate_caches: bool | msgspec.UnsetType = msgspec.UNSET
    warm_schedule: list[dict[str, Any]] | msgspec.UnsetType = msgspec.UNSET


class Pools(ApiView):
    """`GET pools`: every pool with its load, its signal and its nodes."""

    @operation(list_of=Whole(bodies.PoolJson))
    def get(self, request: Request) -> Response:
        """List pools. Staff only."""
        found = signals(actor=self.actor(), now=timezone.now())
        return self.listed(found, pool_json, "pool")


class OnePool(ApiView):
    """`PUT pools/<name>`: make or change a pool."""

    @operation(body=PoolBody, answer=bodies.PoolNamed)
    def put(self, request: Request, name: str) -> Response:
        """Set a pool, except the command of the local driver. Staff only."""
        given = msgspec.structs.asdict(self.body(PoolBody))
        known = pool_find(name=name)
        values = {field: value for field, value in given.items() if value is not msgspec.UNSET}
        pool = pool_set(actor=self.actor(), draft=pool_draft(name, values))
        return Response({"pool": pool.name}, status=200 if known else 201)


class Desired(ApiView):
    """`GET pools/<name>/desired`: one pool's signal, in a shape that KEDA's metrics-api reads."""

    authentication_classes = ()

    @operation(answer=bodies.SignalJson)
    def get(self, request: Request, name: str) -> Response:
        """Get the desired number of nodes; needs the metrics token or the operator token."""
        if not may_read_metrics(request):
            return failed(401, "Send the metrics token as a bearer token.")
        now = timezone.now()
        found = [each for each in signals(actor=OPERATOR, now=now) if each.pool.name == name]
        return Response(signal_json(found[0])) if found else failed(404, "Pool not found.")


class NodeAction(ApiView):
    """`POST nodes/<name>/approve | drain | undrain | remove | forgive`."""

    step_up_methods = frozenset({"POST"})

    @operation(body=DrainBody, answer=bodies.NodeChangedJson)
    def post(self, request: Request, name: str, action: str) -> Response:
        """Approve, drain, resume, release or remove a node; `changed` is false for no change."""
        node, actor = node_get(user=self.actor(), name=name), self.actor()
        more: dict[str, Any] = {}
        if action == "drain":
            more["deadline_s"] = self.body(DrainBody).deadline_s
        else:
            self.body(Nothing)
        changed = ACTIONS[action](actor=actor, node=node, **more)
        return Response({"node": node.name, "changed": changed})


class NodeModels(ApiView):
    """`PUT nodes/<name>/models`: its allow-list."""

    step_up_methods = frozenset({"PUT"})

    @operation(body=ModelsBody, answer=bodies.NodeModelsJson)
    def put(self, request: Request, name: str) -> Response:
        """Set the models that a node may serve. Staff only."""
        node, models = node_get(user=self.actor(), name=name), self.body(ModelsBody).models
        node_allow(actor=self.actor(), node=node, models=models)
        return Response({"node": node.name, "models": models})


class Digests(ApiView):
    """`GET digests`: all that nodes have offered, those that wait first."""

    @operation(list_of=Whole(bodies.DigestJson))
    def get(self, request: Request) -> Response:
        """List tokenizer digests that nodes offer. Staff only."""
        return self.listed(digest_list(user=self.actor()), digest_json)


class DigestDecision(ApiView):
    """`POST digests/<id>/approve | refuse`."""

    step_up_methods = frozenset({"POST"})

    @operation(answer=Changed)
    def post(self, request: Request, digest_id: Any, decision: str) -> Response:
        """Approve or refuse a digest. Staff only."""
        row = digest_get(user=self.actor(), digest_id=digest_id)
        changed = digest_decide(actor=self.actor(), digest=row, approved=DECISIONS[decision])
        return Response({"id": public_id("digest", row.id), "changed": changed})


class Tokens(ApiView):
    """`GET tokens`: those that are open. `POST tokens`: a new one, shown in this one answer."""

    step_up_methods = frozenset({"POST"})

    @operation(list_of=Whole(bodies.TokenJson))
    def get(self, request: Request) -> Response:
        """List enrolment tokens without secrets. Staff only."""
        rows = token_list(user=self.actor(), now=timezone.now())
        return self.listed(rows, token_json)

    @operation(body=TokenBody, answer=bodies.NewTokenJson, status=201)
    def post(self, request: Request) -> Response:
        """Create an enrolment token. Staff only."""
        wanted = self.body(TokenBody)
        made = token_create(actor=self.actor(), draft=TokenDraft(**msgspec.structs.asdict(wanted)))
        body = {**token_json(made.token), "token": made.secret}
        return Response(body, status=201, headers={"Cache-Control": "no-store"})


class OneToken(ApiView):
    """`DELETE tokens/<id>`: end a token before it is used."""

    @operation(answer=Changed)
    def delete(self, request: Request, token_id: Any) -> Response:
        """Revoke an enrolment token. Staff only."""
        row = token_get(user=self.actor(), token_id=token_id)
        changed = token_revoke(actor=self.actor(), token=row)
        return Response({"id": public_id("token", row.id), "changed": changed})


class Enrol(ApiView):
    """`POST enrol`: a node's own credential for a token, once; the token is the authentication."""

    authentication_classes = ()
    address_throttle = DoorThrottle

    @operation(body=EnrolBody, answer=bodies.EnrolledJson, status=201)
    def post(self, request: Request) -> Response:
        """Exchange an enrolment token for a credential, which is returned only once."""
        given = self.body(EnrolBody)
        try:
            made = token_redeem(secret=given.token, name=given.name, pool=given.pool)
        except EnrolmentRefused:
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
