"""Why tokens of a prompt were missed: what the teller needs, taken from the stages' results."""

import msgspec

from controlplane.gateway.after.misses.explain import Offered
from controlplane.gateway.after.misses.teller import Inquiry, Prompted, tenant_of
from controlplane.gateway.nodes.link import NodeLink
from controlplane.gateway.progress import Progress
from controlplane.gateway.results import Asked, Prepared
from controlplane.kernel.receipt import Miss


class Reuse(msgspec.Struct, frozen=True, kw_only=True):
    """Cached tokens of one prompt, as in `Offered`."""

    delivered: int
    predicted: int
    available: int


def find_miss(run: Progress) -> Miss | None:
    """Why tokens were not cached, where an engine that has an index computed the prompt."""
    trail, charge = run.trail, run.charge
    asked, placement, step = trail.asked, trail.placement, trail.step
    cluster, prompt = trail.cluster, trail.prompt
    if asked is None or step is None or cluster is None or prompt is None:
        return None
    if placement is None or charge is None or not charge.usage.prompt_tokens:
        return None
    reuse = Reuse(
        delivered=charge.usage.cached_tokens,
        predicted=placement.cached_tokens,
        available=placement.receipt.available_tokens,
    )
    inquiry = inquiry_of(asked, Prepared(step, cluster, prompt), placement.link, reuse)
    return None if inquiry is None else run.state.misses.tell(inquiry)


def inquiry_of(asked: Asked, prepared: Prepared, link: NodeLink, reuse: Reuse) -> Inquiry | None:
    """What to ask of a prompt; None where only the server behind the node has its tokens, and where
    nothing was looked up in a cache.
    """
    prompt, served = prepared.prompt, prepared.cluster.served
    scored = asked.ask.sampling.prompt_logprobs is not None
    if served.text is None or not prompt.tokens or prompt.lengths or scored:
        return None
    return Inquiry(
        prompted=Prompted(
            tenant=tenant_of(asked.project.salt, served.digest, prepared.step.model.name),
            tokens=prompt.tokens,
            chains=prompt.chains,
            tools=tuple(tool["function"]["name"] for tool in asked.ask.tools),
            text=served.text,
            content=asked.project.content,
        ),
        offered=Offered(
            caches=link.caches_prefixes,
            block_size=link.hello.block_size,
            prompt=len(prompt.tokens),
            delivered=reuse.delivered,
            predicted=reuse.predicted,
            available=reuse.available,
        ),
        price=prepared.step.model.price,
        prefill_tokens_per_s=link.account.speed.prefill_tokens_per_s,
    )
