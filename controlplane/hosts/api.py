"""Hosts and deployments under /api/, for staff; and what agents send, under /api/agent/."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypedDict

import msgspec
from django.utils import timezone
from rest_framework.response import Response

from controlplane.core.answers import Changed, answer_of
from controlplane.core.api.callers import bearer
from controlplane.core.api.schema import Whole, operation
from controlplane.core.api.throttles import DoorThrottle
from controlplane.core.api.views import ApiView, failed
from controlplane.hosts import services
from controlplane.hosts.models import Deployment, Host
from controlplane.hosts.reconcile import host_report
from controlplane.hosts.selectors import (
    DeploymentView,
    deployment_list,
    host_get,
    host_list,
    is_fresh,
)
from controlplane.kernel.ids import DeploymentId, DeploymentReplicaId, HostId, public_id
from inference.contract.hosts import HostOrders, HostReport


class HostJson(TypedDict):
    """A host. `inventory` is what its agent told last: sizes in bytes, shares 0 to 1, null for
    what it cannot tell; `fresh` is false where that was long ago. Since `removed_at` it drains."""

    id: HostId
    name: str
    redacted: str
    enrolled_at: datetime | None
    seen_at: datetime | None
    fresh: bool
    removed_at: datetime | None
    inventory: dict[str, Any]


class NewHostJson(TypedDict):
    """The one-time token of a host's agent, which only this answer has."""

    id: HostId
    name: str
    token: str
    token_expires_at: datetime


class ReplicaJson(TypedDict):
    """A replica. `told` is its agent's last word: phase, message, restarts, bytes fetched of those
    to fetch, and the digest of its files; `need` are the bytes of memory that it was given."""

    id: DeploymentReplicaId
    node: str
    host: str
    gpu: int | None
    generation: int
    revision: str
    need: int
    ready: bool
    leaving: bool
    told: dict[str, Any]


class DeploymentJson(TypedDict):
    """A deployment. `message` says why it is refused; `wanted` is what its schedule asks for now.

    `commit` is what `revision` was found to be, `files_digest` that of the files that its first
    replica had.
    """

    id: DeploymentId
    name: str
    model: str
    engine: str
    source_kind: str
    source_name: str
    revision: str
    commit: str
    arguments: dict[str, str]
    window: int
    sequences: int
    replicas: int
    schedule: list[dict[str, Any]]
    hosts: list[str]
    generation: int
    files_digest: str
    state: str
    message: str
    wanted: int
    ready: int
    placed: list[ReplicaJson]


class HostCredentialJson(TypedDict):
    """A host's own credential, which only this answer has."""

    credential: str


class HostBody(msgspec.Struct, forbid_unknown_fields=True):
    """A host's name."""

    name: str


class HostEnrolBody(msgspec.Struct, forbid_unknown_fields=True):
    """What an agent sends for its credential."""

    token: str
    name: str


class DeploymentBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What should run; without `hosts` wherever it fits."""

    name: str
    model: str
    source_kind: str
    source_name: str
    engine: str = "compact"
    revision: str = ""
    arguments: dict[str, str] = {}
    window: int = 4_096
    sequences: int = 8
    replicas: int = 1
    schedule: list[dict[str, Any]] = []
    hosts: list[str] = []


class DeploymentChangeBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """New values; what is left out stays."""

    source_kind: str | msgspec.UnsetType = msgspec.UNSET
    source_name: str | msgspec.UnsetType = msgspec.UNSET
    engine: str | msgspec.UnsetType = msgspec.UNSET
    revision: str | msgspec.UnsetType = msgspec.UNSET
    arguments: dict[str, str] | msgspec.UnsetType = msgspec.UNSET
    window: int | msgspec.UnsetType = msgspec.UNSET
    sequences: int | msgspec.UnsetType = msgspec.UNSET
    replicas: int | msgspec.UnsetType = msgspec.UNSET
    schedule: list[dict[str, Any]] | msgspec.UnsetType = msgspec.UNSET
    hosts: list[str] | msgspec.UnsetType = msgspec.UNSET


class HostsApi(ApiView, at="api/hosts"):
    @operation(list_of=Whole(HostJson))
    def get(self) -> Response:
        """List hosts with what they have. Staff only."""
        now = timezone.now()
        rows = host_list(user=self.actor())
        return self.listed(rows, lambda row: answer_of(HostJson, row, fresh=is_fresh(row, now)))

    @operation(body=HostBody, answer={201: NewHostJson}, step_up=True)
    def post(self, asked: HostBody) -> Response:
        """Add a host: create the one-time token of its agent. Staff only."""
        made = services.host_add(actor=self.actor(), name=asked.name)
        body = answer_of(NewHostJson, made.host, token=made.token)
        return Response(body, status=201, headers={"Cache-Control": "no-store"})


class OneHostApi(ApiView, at="api/hosts/<str:name>"):
    @operation(answer=Changed, step_up=True)
    def delete(self, name: str) -> Changed:
        """Remove a host: its agent drains what it runs. At once where it is silent, or was removed
        before. Staff only."""
        host = host_get(Host, user=self.actor(), name=name)
        told = public_id("host", host.id)
        services.host_remove(actor=self.actor(), host=host)
        return {"id": told, "changed": True}


class DeploymentsApi(ApiView, at="api/deployments"):
    @operation(list_of=Whole(DeploymentJson))
    def get(self) -> Response:
        """List deployments with their replicas. Staff only."""
        found = deployment_list(user=self.actor(), now=timezone.now())
        return self.listed(found, deployment_json)

    @operation(body=DeploymentBody, answer={201: DeploymentJson}, step_up=True)
    def post(self, asked: DeploymentBody) -> Response:
        """Deploy a model. Hosts measure it first; where it does not fit, `message` says why.

        Staff only.
        """
        given = msgspec.structs.asdict(asked)
        name = given.pop("name")
        draft = services.DeploymentDraft(**given)
        row = services.deployment_create(actor=self.actor(), name=name, draft=draft)
        return Response(one_json(self.actor(), row.name), status=201)


class OneDeploymentApi(ApiView, at="api/deployments/<str:name>"):
    @operation(answer=DeploymentJson)
    def get(self, name: str) -> DeploymentJson:
        """Get a deployment. Staff only."""
        return one_json(self.actor(), name)

    @operation(body=DeploymentChangeBody, answer=DeploymentJson, step_up=True)
    def patch(self, asked: DeploymentChangeBody, name: str) -> DeploymentJson:
        """Scale or upgrade a deployment; a new replica serves before an old one drains.

        Staff only.
        """
        row = host_get(Deployment, user=self.actor(), name=name)
        given = msgspec.structs.asdict(asked)
        values = {field: value for field, value in given.items() if value is not msgspec.UNSET}
        services.deployment_change(actor=self.actor(), deployment=row, values=values)
        return one_json(self.actor(), name)

    @operation(answer=Changed, step_up=True)
    def delete(self, name: str) -> Changed:
        """Remove a deployment: its replicas drain first. Staff only."""
        row = host_get(Deployment, user=self.actor(), name=name)
        changed = services.deployment_remove(actor=self.actor(), deployment=row)
        return {"id": public_id("deployment", row.id), "changed": changed}


class AgentEnrol(ApiView, at="api/agent/enrol"):
    authentication_classes = ()
    address_throttle = DoorThrottle

    @operation(body=HostEnrolBody, answer={201: HostCredentialJson})
    def post(self, given: HostEnrolBody) -> Response:
        """Exchange a host's token for its credential, which is returned only once."""
        try:
            made = services.host_enrol(token=given.token, name=given.name)
        except services.HostUnknown:
            return failed(403, "The token is unknown, used, expired or of another host.")
        return Response({"credential": made}, status=201, headers={"Cache-Control": "no-store"})


class AgentReport(ApiView, at="api/agent/report"):
    authentication_classes = ()

    @operation(body=HostReport, answer=HostOrders)
    def post(self) -> Response:
        """Report a host's state and get what it should run; needs the host's credential."""
        try:
            host = services.host_known(credential=bearer(self.request) or "")
            orders = host_report(host=host, report=self.body(HostReport))
        except services.HostUnknown:
            return failed(401, "The host's credential is unknown, or the host was removed.")
        return Response(msgspec.to_builtins(orders), headers={"Cache-Control": "no-store"})


def one_json(actor: Any, name: str) -> DeploymentJson:
    """A deployment as it stands; raises ObjectDoesNotExist."""
    for view in deployment_list(user=actor, now=timezone.now()):
        if view.row.name == name:
            return deployment_json(view)
    raise Deployment.DoesNotExist


def deployment_json(view: DeploymentView) -> DeploymentJson:
    placed: list[Mapping[str, Any]] = [
        answer_of(
            ReplicaJson,
            each.row,
            node=each.row.node_name,
            host=each.row.host.name,
            ready=each.ready,
        )
        for each in view.replicas
    ]
    return answer_of(
        DeploymentJson,
        view.row,
        placed=placed,
        state=view.state,
        wanted=view.wanted,
        ready=view.ready,
    )
