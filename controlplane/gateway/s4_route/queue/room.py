"""Room for a request: where it waits, with what claim, and for which nodes."""

from collections.abc import Collection
from functools import partial
from typing import Protocol

from controlplane.gateway.call import Call
from controlplane.gateway.degraded import overloaded
from controlplane.gateway.nodes.link import NodeLink
from controlplane.gateway.nodes.registry import Fleet
from controlplane.gateway.plan import PlannedStep
from controlplane.gateway.results import Asked, Cluster, Prepared
from controlplane.gateway.s4_route.queue.request import NoRoom
from controlplane.gateway.s4_route.rules import queue_claim, queue_lane
from controlplane.gateway.s4_route.saturation import WaitingRoom
from controlplane.kernel.clock import monotonic_s, wall_s
from inference.contract.capabilities import Capability

# Well within the time after which a node that stands still is noticed.
SEEN_S = 1.5


class RoomPorts(Protocol):
    """What finding room needs of everything outside the request."""

    fleet: Fleet
    waiting: WaitingRoom


async def find_room(
    call: Call, asked: Asked, prepared: Prepared, state: RoomPorts, *, tried: set[str]
) -> tuple[NodeLink, ...]:
    """Nodes of which one has a credit for the request, when its turn has come.

    Raises `Refusal` (503).
    """
    cluster, step, prompt = prepared.cluster, prepared.step, prepared.prompt
    claim = queue_claim(
        call, step, asked.plan, project=asked.project, tokens=prompt.size, choices=asked.ask.choices
    )
    # Whoever decided this may have died since: then it ends by itself.
    if wall_s() < asked.snapshot.shed_until.get(claim.priority, 0.0):
        raise overloaded(NoRoom("shed"))
    # Whoever waits in the lane after this request is served by these, too: what the request goes on
    # to, if it gives up here, must not change them.
    nodes = partial(
        _nodes_now,
        state.fleet,
        cluster,
        step=step,
        sizes=prompt.chains.keys(),
        required=asked.ask.required,
        tried=frozenset(tried),
    )
    line = (step.model.name, step.pool, cluster.region)
    roomy = state.waiting.pass_by(call, line, nodes(), claim)
    if not roomy:
        lane = queue_lane(
            step,
            asked.ask,
            region=cluster.region,
            assets=cluster.served.digest,
            sizes=prompt.chains,
            tried=tried,
        )
        try:
            roomy = await state.waiting.roomy(call, lane, nodes, claim=claim)
        except NoRoom as error:
            raise overloaded(error) from error
    return _lively(roomy) if tried else roomy


def _lively(nodes: tuple[NodeLink, ...]) -> tuple[NodeLink, ...]:
    """Those with a credit that were seen a moment ago, if any: nodes are often lost together, and
    one that nobody has asked for anything since may stand still as well.
    """
    floor_s = monotonic_s() - SEEN_S
    free = [link for link in nodes if link.account.credits_left > 0]
    return tuple([link for link in free if link.seen_s >= floor_s]) or nodes


def _nodes_now(
    fleet: Fleet,
    cluster: Cluster,
    *,
    step: PlannedStep,
    sizes: Collection[int],
    required: Collection[Capability],
    tried: frozenset[str],
) -> tuple[NodeLink, ...]:
    """The cluster as it is by now: nodes come and go while a request waits for room.

    `queue_lane` tells apart what this depends on.
    """
    served = fleet.models().get(step.model.name)
    if served is cluster.served and not tried:
        return cluster.nodes
    if served is None or served.digest != cluster.served.digest:
        return ()
    group = served.groups(step.pool, frozenset(required)).get(cluster.region)
    if group is None or (not tried and group.block_sizes.issubset(sizes)):
        return group.nodes if group else ()
    return tuple(
        [
            link
            for link in group.nodes
            if link.hello.block_size in sizes and link.identity.id not in tried
        ]
    )
