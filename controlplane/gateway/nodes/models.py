"""Which models the connected nodes serve together; nodes that disagree on one are left out."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from controlplane.gateway.nodes.link import NodeLink
from controlplane.gateway.nodes.peers import serving
from inference.contract.frames import ModelOffer
from inference.text.model_text import ModelText


class ServedModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model with its text objects and the nodes that take jobs for it now, without ejected ones.

    `text` is None where the engines take the request's own messages and no token ids;
    `dimensions` is empty unless it embeds.
    """

    name: str
    digest: str
    context_window: int
    vocab_size: int
    text: ModelText | None
    dimensions: tuple[int, ...]
    nodes: tuple[NodeLink, ...]


def served_models(
    links: Iterable[NodeLink],
    *,
    text_of: Callable[[str], ModelText | None],
    approved: Callable[[ModelOffer], bool],
) -> dict[str, ServedModel]:
    """Models by name. A prompt is tokenized once, so all nodes of a model share one offer.

    Where nodes differ, the offer that was connected first stands: a late or rogue node cannot
    push the others out.
    """
    chosen: dict[str, tuple[ModelOffer, ModelText | None]] = {}
    nodes: dict[str, list[NodeLink]] = {}
    for link in links:
        if not link.takes_jobs:
            continue
        for offer in link.hello.models:
            if not approved(offer):
                continue
            text = text_of(offer.digest) if offer.digest else None
            if text is None and offer.digest:
                continue
            first, _ = chosen.setdefault(offer.name, (offer, text))
            if first == offer:
                nodes.setdefault(offer.name, []).append(link)
    return {
        name: ServedModel(
            name=name,
            digest=offer.digest,
            context_window=offer.context_window,
            vocab_size=offer.vocab_size,
            text=text,
            dimensions=tuple(offer.dimensions),
            nodes=serving(nodes[name]),
        )
        for name, (offer, text) in chosen.items()
    }
