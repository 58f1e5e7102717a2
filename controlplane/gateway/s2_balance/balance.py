"""The order of stage 2's layers."""

from typing import Protocol

from controlplane.gateway.ask import Ask
from controlplane.gateway.call import Call
from controlplane.gateway.nodes.registry import Fleet
from controlplane.gateway.places import Places
from controlplane.gateway.plan import PlannedStep
from controlplane.gateway.results import Cluster
from controlplane.gateway.s2_balance.health import able_nodes, healthy_model
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
    model, found = step.model, state.fleet.models().get(step.model.name)
    served = healthy_model(call, found, model=model.name, pool=step.pool, task=model.task)
    groups = able_nodes(served, step.pool, ask.required)
    regions = near_regions(
        call,
        groups.keys(),
        client_region=state.places.region_of(call),
        own_region=state.region,
    )
    region = pick_region(call, regions, groups)
    group = groups[region]
    return Cluster(region, group.nodes, served, group.block_sizes)
