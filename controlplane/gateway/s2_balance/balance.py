"""The order of stage 2's layers."""

from typing import Protocol

from controlplane.gateway.ask import Ask
from controlplane.gateway.call import Call
from controlplane.gateway.nodes.registry import Fleet
from controlplane.gateway.places import Places
from controlplane.gateway.plan import PlannedStep
from controlplane.gateway.results import Cluster
from controlplane.gateway.s2_balance.health import able_nodes, healthy_nodes
from controlplane.gateway.s2_balance.load import pick_region
from controlplane.gateway.s2_balance.proximity import near_regions


class BalancePorts(Protocol):
    """What stage 2 needs to know of everything outside the request."""

    fleet: Fleet
    places: Places
    region: str


def balance(call: Call, ask: Ask, step: PlannedStep, state: BalancePorts) -> Cluster:
    """Choose the cluster; raises `Refusal`: 503 when no node serves the model, 400 when none of
    them can do what a parameter asks for.
    """
    model, fleet = step.model, state.fleet
    served = fleet.models().get(model.name)
    nodes = healthy_nodes(call, served, model=model.name, pool=step.pool, task=model.task)
    nodes = able_nodes(nodes, model=model.name, required=ask.required)
    regions = near_regions(
        call,
        {link.hello.region for link in nodes},
        client_region=state.places.region_of(call),
        own_region=state.region,
    )
    region = pick_region(call, regions, nodes)
    here = nodes
    if len(regions) > 1:
        here = tuple([link for link in nodes if link.hello.region == region])
    return Cluster(region, here, fleet.models()[model.name])
