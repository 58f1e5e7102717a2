"""Room for a request: where it waits, with what claim, and for which nodes."""

from __future__ import annotations

from functools import partial

from controlplane.gateway.degraded import overloaded
from controlplane.gateway.nodes.link import NodeLink
from controlplane.gateway.s4_route.rules import queue_claim, queue_lane
from controlplane.gateway.trip import Trip, made
from controlplane.gateway.waiting.claim import NoRoom
from inference.contract.frames import BYTES_PER_TOKEN


async def find_room(trip: Trip, tried: set[str]) -> tuple[NodeLink, ...]:
    """Nodes that have a credit for the request, when its turn has come; raises `Refusal` (503)."""
    call, admitted, prompt = trip.call, made(trip.admitted), made(trip.prompt)
    cluster, step = made(trip.cluster), made(trip.step)
    lane = queue_lane(
        step,
        admitted.ask,
        region=cluster.region,
        assets=cluster.served.digest,
        sizes=prompt.chains,
        tried=tried,
    )
    claim = queue_claim(
        call,
        step,
        admitted.plan,
        project=admitted.snapshot.projects[admitted.key.project],
        tokens=len(prompt.tokens) or len(prompt.text) // BYTES_PER_TOKEN,
        choices=admitted.ask.sampling.n,
    )
    nodes = partial(_nodes_now, trip, frozenset(tried))
    try:
        return await trip.world.waiting.roomy(call, lane, nodes, claim=claim)
    except NoRoom as error:
        raise overloaded(error) from error


def _nodes_now(trip: Trip, tried: frozenset[str]) -> tuple[NodeLink, ...]:
    """The cluster as it is by now: nodes come and go while a request waits for room.

    `queue_lane` tells apart what this depends on.
    """
    cluster, prompt = made(trip.cluster), made(trip.prompt)
    step, ask = made(trip.step), made(trip.admitted).ask
    served = trip.world.fleet.models().get(step.model.name)
    if served is cluster.served and not tried:
        return cluster.nodes
    if served is None or served.digest != cluster.served.digest:
        return ()
    return tuple(
        link
        for link in served.nodes
        if link.hello.region == cluster.region
        and link.hello.pool == step.pool
        and link.hello.block_size in prompt.chains
        and link.identity.id not in tried
        and (link.follows_grammars or not ask.grammar_field)
    )
