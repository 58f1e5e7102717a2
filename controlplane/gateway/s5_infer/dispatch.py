"""Make the job of a request and hand it to the chosen node."""

import msgspec

from controlplane.gateway.call import Call, onward_headers
from controlplane.gateway.nodes.link import NodeLink
from controlplane.gateway.nodes.measured.account import NoCredit
from controlplane.gateway.nodes.registry import Fleet
from controlplane.gateway.nodes.stream import JobStream
from inference.contract.capabilities import Capability
from inference.contract.frames import Job, Sampling
from inference.contract.parts import ShownPicture
from inference.contract.transfer import Transfer


class NodeChanged(Exception):
    """The node cannot take the job after all: its state moved since it was chosen."""


class JobWork(msgspec.Struct, frozen=True, kw_only=True):
    """What a node needs to know; the model is the served one, not the alias.

    `request_json` is for engines that take only text, `inputs` for those that embed.
    """

    model: str
    sampling: Sampling
    tokens: list[int]
    chains: dict[int, list[bytes]]
    output_tokens: int
    salt: bytes
    request_json: bytes = b""
    inputs: list[list[int]] = []
    lengths: list[int] = []
    stop_tokens: list[int] = []
    pictures: list[ShownPicture] = []
    hands_over: bool = False
    transfer: Transfer | None = None


def dispatch(
    call: Call, work: JobWork, link: NodeLink, fleet: Fleet, *, cached_tokens: int
) -> JobStream:
    """Send the job; raises `NodeChanged`."""
    # Only a server that gets the request itself can go on with its trace.
    parent, state = onward_headers(call.trace if work.request_json else None)
    transfer = work.transfer if Capability.TAKES_OVER in link.abilities else None
    if transfer is not None:
        # Nothing of it waits for the node.
        cached_tokens = len(work.request_json)
    job = Job(
        request=call.request,
        model=work.model,
        tokens=work.tokens,
        salt=work.salt,
        hashes=b"".join(work.chains[link.hello.block_size]),
        sampling=msgspec.structs.replace(work.sampling, max_tokens=work.output_tokens),
        stop_tokens=work.stop_tokens,
        deadline_ms=max(1, call.left_ms()),
        priority=call.priority,
        request_json=work.request_json,
        inputs=work.inputs,
        lengths=work.lengths,
        pictures=work.pictures,
        traceparent=parent,
        tracestate=state,
        hands_over=work.hands_over,
        transfer=transfer,
    )
    try:
        return fleet.dispatch(link, job, cached_tokens=cached_tokens)
    except (NoCredit, LookupError) as error:
        raise NodeChanged(str(error)) from error
