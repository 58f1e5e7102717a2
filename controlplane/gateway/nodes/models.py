"""Which models the connected nodes serve together; nodes that disagree on one are left out."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property

import msgspec

from controlplane.gateway.nodes.link import NodeLink
from controlplane.gateway.nodes.peers import serving
from inference.contract.capabilities import Capability
from inference.contract.frames import ModelOffer
from inference.text.model_text import ModelText


class NodeGroup(msgspec.Struct, frozen=True):
    """Nodes of one model, pool and region, and the sizes of their blocks in tokens."""

    nodes: tuple[NodeLink, ...]
    block_sizes: frozenset[int]


class ServedModel(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A model with its text objects and the nodes that take jobs for it now, without ejected ones.

    `takes_text`: its engines take the request's own messages; `text` is None where nobody but they
    has the tokenizer. `dimensions` is empty unless it embeds, and that of a score where it `scores`
    pairs of texts. `adapter`: its nodes serve the model that it changes, too, from the same cache.
    `prefills` are nodes of any pool that only compute prompts, for those of `nodes`.
    """

    name: str
    digest: str
    context_window: int
    vocab_size: int
    text: ModelText | None
    dimensions: tuple[int, ...]
    takes_text: bool
    adapter: bool
    nodes: tuple[NodeLink, ...]
    prefills: tuple[NodeLink, ...] = ()

    @property
    def scores(self) -> bool:
        """Whether it is a cross-encoder."""
        return self.dimensions == (1,)

    def groups(self, pool: str, required: frozenset[Capability]) -> Mapping[str, NodeGroup]:
        """By region the nodes of a pool that can do all that is required.

        Worked out once: when any node changes, there is another `ServedModel`.
        """
        found = self._groups.get((pool, required))
        if found is None:
            regions: defaultdict[str, list[NodeLink]] = defaultdict(list)
            for link in self.nodes:
                if link.hello.pool == pool and link.abilities >= required:
                    regions[link.hello.region].append(link)
            found = self._groups[pool, required] = {
                region: NodeGroup(tuple(links), frozenset(each.hello.block_size for each in links))
                for region, links in regions.items()
            }
        return found

    @cached_property
    def _groups(self) -> dict[tuple[str, frozenset[Capability]], dict[str, NodeGroup]]:
        return {}

    def can(self, capability: Capability) -> bool:
        """Whether some of its nodes can."""
        return any(capability in link.abilities for link in self.nodes)


class Approval(msgspec.Struct, frozen=True, kw_only=True):
    """What staff decided on a model: its digests, of which None allows any, and its window in
    tokens, of which None demands none.
    """

    digests: frozenset[str] | None = None
    context_window: int | None = None

    def admits(self, offer: ModelOffer) -> bool:
        """Whether its assets may be fetched and used."""
        return self.digests is None or offer.digest in self.digests

    def counted(self, offer: ModelOffer) -> ModelOffer:
        """The offer as far as requests can use it: no window beyond the configured one."""
        window = min(offer.context_window, self.context_window or offer.context_window)
        return msgspec.structs.replace(offer, context_window=window)


# An offer without its name, comparable: window, vocabulary, dimensions, digest; `takes_text`,
# whether it is an adapter.
_Claim = tuple[int, int, tuple[int, ...], str, bool, bool]


def served_models(
    links: Iterable[NodeLink],
    *,
    text_of: Callable[[str], ModelText | None],
    approval_of: Callable[[str], Approval],
) -> dict[str, ServedModel]:
    """Models by name. A prompt is tokenized once, so all nodes of a model share one offer.

    Where nodes differ, the offer of most nodes stands; of two with as many, the one with more of
    the window that staff configured. Which node connected first decides nothing, so that one which
    lies about its model cannot push the others out by coming early.
    """
    offered: dict[str, dict[_Claim, list[NodeLink]]] = {}
    for link in links:
        if not link.takes_jobs:
            continue
        for offer in link.hello.models:
            approval = approval_of(offer.name)
            if approval.admits(offer) and (not offer.digest or text_of(offer.digest)):
                claims = offered.setdefault(offer.name, {})
                claims.setdefault(_claim(approval.counted(offer), link), []).append(link)
    return {name: _served(name, claims, text_of) for name, claims in offered.items()}


def _claim(offer: ModelOffer, link: NodeLink) -> _Claim:
    dimensions, takes_text = tuple(offer.dimensions), Capability.TEXT in link.abilities
    sizes = offer.context_window, offer.vocab_size, dimensions
    return *sizes, offer.digest, takes_text, offer.adapter


def _served(
    name: str, claims: dict[_Claim, list[NodeLink]], text_of: Callable[[str], ModelText | None]
) -> ServedModel:
    claim = max(claims, key=lambda each: (len(claims[each]), each))
    window, vocab_size, dimensions, digest, takes_text, adapter = claim
    links = serving(claims[claim])
    return ServedModel(
        name=name,
        digest=digest,
        context_window=window,
        vocab_size=vocab_size,
        text=text_of(digest) if digest else None,
        dimensions=dimensions,
        takes_text=takes_text,
        adapter=adapter,
        nodes=tuple([each for each in links if Capability.HANDS_OVER not in each.abilities]),
        prefills=tuple([each for each in links if Capability.HANDS_OVER in each.abilities]),
    )
