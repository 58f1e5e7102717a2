"""Prefill and decode apart: a node computes the prompt and hands it over, another goes on from it.

The prefill node is that of the lowest cost for the prompt, the other that of the lowest load.
Whatever fails on the way, the request is done whole on a node that decodes.
"""

import asyncio
import logging

import msgspec

from controlplane.gateway.call import Call
from controlplane.gateway.nodes.link import NodeLink
from controlplane.gateway.nodes.registry import Fleet
from controlplane.gateway.nodes.stream import (
    JobRejected,
    NodeLost,
    RemoteTimes,
    SlowReader,
)
from controlplane.gateway.progress import Progress
from controlplane.gateway.results import Asked, HandedOver, Placement, Prepared
from controlplane.gateway.s4_route.node import pick_node
from controlplane.gateway.s4_route.prefix import find_overlap, sought_of
from controlplane.gateway.s5_infer.dispatch import JobWork, NodeChanged, dispatch
from controlplane.kernel.clock import monotonic_s
from controlplane.kernel.receipt import NodeAttempt
from controlplane.kernel.spans import INDEX
from inference.contract.capabilities import Capability
from inference.contract.frames import Sampling
from inference.contract.transfer import Transfer

S5 = INDEX["s5_infer"]
# A prompt of which a node that decodes has all but so much is soon computed there.
UNCACHED_TOKENS_MIN = 256
# Of the time that is left: the rest is for doing it whole, should that fail.
LEFT_SHARE_MAX = 0.5
MS_PER_S = 1000

log = logging.getLogger(__name__)


async def prefill_apart(run: Progress, asked: Asked, prepared: Prepared) -> Prepared:
    """With its prompt computed, where the model has nodes for that and it is long enough."""
    call, state = run.call, run.state
    nodes = _prefills(run, asked, prepared)
    if not nodes:
        return prepared
    sought = sought_of(asked, prepared)
    placement = pick_node(call, sought, state.fleet, state.routing, nodes=nodes)
    name = placement.link.identity.name
    began, at_us = call.spans.clock(), call.elapsed_us()
    try:
        handed_over = await _prefill(call, prepared, placement, state.fleet)
    except (NodeChanged, NodeLost, JobRejected, SlowReader, TimeoutError) as error:
        log.warning("prefill failed name=%s reason=%s", name, error)
        run.trail.attempts.append(NodeAttempt(name, str(error) or "took too long"))
        return prepared
    finally:
        call.spans.add(S5, began)
    if handed_over is None:
        return prepared
    transfer, times = handed_over
    receipt = msgspec.structs.replace(placement.receipt, prefill=name)
    return _with(prepared, HandedOver(transfer, receipt, (at_us, times)))


def done_whole(prepared: Prepared) -> Prepared:
    """What was handed over can be taken once."""
    return prepared if prepared.prompt.transfer is None else _with(prepared, None)


def pick_decoder(
    run: Progress, asked: Asked, prepared: Prepared, roomy: tuple[NodeLink, ...]
) -> Placement:
    """The least loaded of those that take prompts over, or of all where none has room."""
    call, state = run.call, run.state
    assert prepared.prompt.transfer is not None
    takers = tuple(
        each
        for each in roomy
        if Capability.TAKES_OVER in each.abilities and each.account.credits_left > 0
    )
    chains: dict[int, list[bytes]] = dict.fromkeys(prepared.prompt.chains, [])
    sought = msgspec.structs.replace(sought_of(asked, prepared), tokens=1, chains=chains, key=b"")
    chosen = pick_node(call, sought, state.fleet, state.routing, nodes=takers or roomy)
    if chain := prepared.prompt.chains.get(chosen.link.hello.block_size):
        chosen.link.account.sent.add(chain, monotonic_s())
    if not takers:
        return chosen
    receipt = prepared.prompt.transfer.receipt
    receipt = msgspec.structs.replace(receipt, node=chosen.receipt.node)
    return msgspec.structs.replace(chosen, receipt=receipt)


def _with(prepared: Prepared, transfer: HandedOver | None) -> Prepared:
    prompt = msgspec.structs.replace(prepared.prompt, transfer=transfer)
    return msgspec.structs.replace(prepared, prompt=prompt)


def _prefills(run: Progress, asked: Asked, prepared: Prepared) -> tuple[NodeLink, ...]:
    """Nodes that may compute the prompt now; none where it is better done whole."""
    cluster, prompt, ask = prepared.cluster, prepared.prompt, asked.ask
    if not cluster.served.prefills or not prompt.text or prompt.size < UNCACHED_TOKENS_MIN:
        return ()
    if prompt.lengths or prompt.pictures or ask.choices > 1 or ask.sampling.logprobs is not None:
        return ()
    takers = tuple([each for each in cluster.nodes if Capability.TAKES_OVER in each.abilities])
    if not takers:
        return ()
    state, sought = run.state, sought_of(asked, prepared)
    roster = state.routing.roster(takers)
    overlap = find_overlap(run.call, sought, state.fleet, state.routing, roster=roster)
    if sought.tokens - overlap.most < UNCACHED_TOKENS_MIN:
        return ()
    return tuple(
        link
        for link in cluster.served.prefills
        if link.takes_jobs
        and link.account.credits_left > 0
        and link.hello.region == cluster.region
        and link.hello.block_size in prompt.chains
    )


async def _prefill(
    call: Call, prepared: Prepared, placement: Placement, fleet: Fleet
) -> tuple[Transfer, RemoteTimes] | None:
    """One token on that node, and what that took; None where it hands nothing over.

    Raises `NodeChanged`, `NodeLost`, `JobRejected`, `SlowReader` or TimeoutError.
    """
    prompt, link = prepared.prompt, placement.link
    work = JobWork(
        model=prepared.step.model.name,
        sampling=Sampling(max_tokens=1),
        tokens=[],
        chains=prompt.chains,
        output_tokens=1,
        salt=prompt.salt,
        request_json=prompt.text,
        hands_over=True,
    )
    stream = dispatch(call, work, link, fleet, cached_tokens=placement.cached_tokens)
    call.on_gone = stream.cancel
    handed_over = None
    try:
        async with asyncio.timeout(call.left_ms() * LEFT_SHARE_MAX / MS_PER_S):
            while outputs := await stream.batch():
                handed_over = outputs[-1].transfer
    finally:
        call.on_gone = None
        stream.cancel()
        # Nobody is charged for it by itself.
        fleet.acknowledge(link, call.request)
    if handed_over is None:
        return None
    transfer = Transfer(params=handed_over, cached_tokens=stream.usage.cached_tokens)
    return transfer, stream.times
