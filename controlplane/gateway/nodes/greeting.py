"""Whether a hello is let in at all, by itself and by the credential that it came with."""

from controlplane.gateway.nodes.checks import hello_problem
from controlplane.gateway.nodes.host import LinkRefused
from controlplane.gateway.nodes.limits import CLOSE_FORBIDDEN, CLOSE_POLICY, CLOSE_VERSION
from controlplane.gateway.ports import NodeIdentity
from inference.contract.frames import PROTOCOL_VERSION, Hello


def check_hello(hello: Hello, identity: NodeIdentity) -> None:
    """Raises `LinkRefused`, whose reason names the field."""
    if hello.protocol != PROTOCOL_VERSION:
        reason = f"protocol {hello.protocol}, this gateway speaks {PROTOCOL_VERSION}"
        raise LinkRefused(CLOSE_VERSION, reason)
    problem = hello_problem(hello)
    if problem is not None:
        raise LinkRefused(CLOSE_POLICY, problem)
    if hello.node != identity.name:
        raise LinkRefused(CLOSE_FORBIDDEN, "hello.node: the credential names another node")
    allowed = identity.models
    if allowed is not None and not allowed.issuperset(offer.name for offer in hello.models):
        raise LinkRefused(CLOSE_FORBIDDEN, "hello.models: a model this node may not serve")
    pool = identity.pool
    if pool is not None and hello.pool != pool:
        raise LinkRefused(CLOSE_FORBIDDEN, "hello.pool: the node is registered in another")
