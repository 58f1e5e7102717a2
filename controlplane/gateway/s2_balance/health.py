"""The nodes that can serve a model in a pool now."""

from collections.abc import Mapping

from controlplane.gateway.call import Call
from controlplane.gateway.nodes.link import NodeLink
from controlplane.gateway.nodes.models import ServedModel
from controlplane.gateway.refusal import bad_field, no_node
from controlplane.kernel.spans import INDEX
from inference.contract.capabilities import Capability

HEALTH = INDEX["s2_balance.health"]


def healthy_nodes(
    call: Call, served: ServedModel | None, *, model: str, pool: str, task: str
) -> tuple[NodeLink, ...]:
    """Ready nodes of the pool; raises `Refusal` (503) at once when there is none.

    A node that offers the model for another task than the catalog's is no node of it.
    """
    began = call.spans.clock()
    nodes: tuple[NodeLink, ...] = ()
    if served is not None and bool(served.dimensions) == (task == "embed"):
        nodes = tuple([link for link in served.nodes if link.hello.pool == pool])
    call.spans.add(HEALTH, began)
    if not nodes:
        raise no_node(model)
    return nodes


def able_nodes(
    nodes: tuple[NodeLink, ...], *, model: str, required: Mapping[Capability, str]
) -> tuple[NodeLink, ...]:
    """Those that can do all that is asked for, by which field; raises `Refusal` (400)."""
    for capability, field in required.items():
        nodes = tuple(link for link in nodes if capability in link.abilities)
        if not nodes:
            message = f"No node of '{model}' supports '{field}'."
            raise bad_field(field, message, "unsupported_parameter")
    return nodes
