"""The order of stage 2's layers, and its result."""

from __future__ import annotations

import msgspec

from controlplane.gateway.call import Call
from controlplane.gateway.nodes.link import NodeLink
from controlplane.gateway.nodes.models import ServedModel
from controlplane.gateway.nodes.registry import Fleet
from controlplane.gateway.plan import PlannedStep
from controlplane.gateway.s2_balance.health import healthy_nodes, nodes_that_follow
from controlplane.gateway.s2_balance.load import pick_region
from controlplane.gateway.s2_balance.proximity import near_regions


class Cluster(msgspec.Struct, frozen=True):
    """The nodes of one region that serve the model, and the model's text objects."""

    region: str
    nodes: tuple[NodeLink, ...]
    served: ServedModel


def balance(
    call: Call,
    step: PlannedStep,
    fleet: Fleet,
    *,
    client_region: str | None,
    own_region: str,
    grammar_field: str = "",
) -> Cluster:
    """Choose the cluster; raises `Refusal`: 503 when no node serves the model, 400 when none of
    them can follow the grammar that the client calls `grammar_field`.
    """
    model = step.model
    served = fleet.models().get(model.name)
    nodes = healthy_nodes(call, served, model=model.name, pool=step.pool, task=model.task)
    nodes = nodes_that_follow(nodes, model=model.name, grammar_field=grammar_field)
    regions = near_regions(
        call,
        (link.hello.region for link in nodes),
        client_region=client_region,
        own_region=own_region,
    )
    region = pick_region(call, regions, nodes)
    here = tuple(link for link in nodes if link.hello.region == region)
    return Cluster(region, here, fleet.models()[model.name])
