"""The nodes that can serve a model in a pool now."""

from collections.abc import Mapping

from controlplane.gateway.call import Call
from controlplane.gateway.nodes.models import NodeGroup, ServedModel
from controlplane.gateway.refusal import bad_field, no_node
from controlplane.kernel.spans import INDEX
from inference.contract.capabilities import Capability

HEALTH = INDEX["s2_balance.health"]
NOTHING = frozenset[Capability]()


def healthy_model(
    call: Call, served: ServedModel | None, *, model: str, pool: str, task: str
) -> ServedModel:
    """The model, if it has ready nodes in the pool; raises `Refusal` (503) at once otherwise.

    A node that offers the model for another task than the catalog's is no node of it.
    """
    began = call.spans.clock()
    if served is not None and bool(served.dimensions) != (task == "embed"):
        served = None
    nodes = served is not None and served.groups(pool, NOTHING)
    call.spans.add(HEALTH, began)
    if served is None or not nodes:
        raise no_node(model)
    return served


def able_nodes(
    served: ServedModel, pool: str, required: Mapping[Capability, str]
) -> Mapping[str, NodeGroup]:
    """By region the nodes that can do all that is asked for, by which field; raises `Refusal`
    (400).
    """
    groups = served.groups(pool, frozenset(required) if required else NOTHING)
    needed: set[Capability] = set()
    for capability, field in required.items() if not groups else ():
        needed.add(capability)
        if not served.groups(pool, frozenset(needed)):
            message = f"No node of '{served.name}' supports '{field}'."
            raise bad_field(field, message, "unsupported_parameter")
    return groups
