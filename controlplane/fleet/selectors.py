"""Reads of nodes."""

from controlplane.core.permissions import Action
from controlplane.fleet.models import Node, NodeCredential, NodeState
from controlplane.tenants.access import require
from controlplane.tenants.models import User

NODES_SHOWN_MAX = 1_000


def node_list(*, user: User) -> list[Node]:
    """Registered nodes by pool and name, for staff."""
    require(user, Action.FLEET_VIEW)
    return list(Node.objects.order_by("pool", "name")[:NODES_SHOWN_MAX])


def node_credential_list(*, user: User, node: Node) -> list[NodeCredential]:
    """A node's credentials, newest first, for staff."""
    require(user, Action.FLEET_MANAGE)
    return list(NodeCredential.objects.filter(node=node).order_by("-id"))


def node_credential_find(*, key_id: str) -> NodeCredential | None:
    """The credential of that public id."""
    return NodeCredential.objects.select_related("node").filter(key_id=key_id).first()


def node_credential_active(*, node_name: str) -> list[NodeCredential]:
    """Credentials with which a node of that name may dial in."""
    rows = NodeCredential.objects.select_related("node").filter(node__name=node_name)
    return list(rows.filter(revoked_at=None).order_by("id"))


def pool_regions() -> dict[str, frozenset[str]]:
    """Regions in which each pool has a node connected now."""
    found: dict[str, set[str]] = {}
    for pool, region in Node.objects.filter(state=NodeState.CONNECTED).values_list(
        "pool", "region"
    ):
        found.setdefault(pool, set()).add(region)
    return {pool: frozenset(regions) for pool, regions in found.items()}
