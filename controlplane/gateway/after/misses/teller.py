"""Tells of a finished request why tokens were missed, and remembers its prompt for the next."""

from collections.abc import Sequence

import msgspec

from controlplane.gateway.after.misses.explain import TOKEN_BYTES, Offered, explain, pack
from controlplane.gateway.after.misses.history import History, Seen
from controlplane.kernel.price import Price, TokenCounts, charge_nano
from controlplane.kernel.receipt import Miss
from inference.text.model_text import ModelText

MS_PER_S = 1000


class Prompted(msgspec.Struct, frozen=True, kw_only=True):
    """One answered prompt. `tenant` separates what may be compared: salt, tokenizer and model.

    `content`: the project lets text of its prompts be kept; without it only causes are told.
    """

    tenant: bytes
    tokens: Sequence[int]
    chains: dict[int, list[bytes]]
    tools: tuple[str, ...]
    text: ModelText
    content: bool


class Inquiry(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt, what the cache gave for it, and what that costs."""

    prompted: Prompted
    offered: Offered
    price: Price
    prefill_tokens_per_s: float


class MissTeller:
    """One per gateway process; what other gateways have seen it does not know."""

    def __init__(self) -> None:
        self._history = History()

    def tell(self, inquiry: Inquiry) -> Miss | None:
        """Why tokens were missed, None where none were. Costs are those of what was avoidable."""
        miss = self.foresee(inquiry)
        prompted, offered = inquiry.prompted, inquiry.offered
        if offered.caches and offered.prompt > offered.block_size:
            now = _seen(prompted)
            head = now.tokens[: offered.block_size * TOKEN_BYTES]
            self._history.add(prompted.tenant, now, head)
        return miss

    def foresee(self, inquiry: Inquiry) -> Miss | None:
        """The same of a prompt that is not to be remembered, since it was not computed."""
        prompted, offered = inquiry.prompted, inquiry.offered
        size = offered.block_size
        if not offered.caches:
            return Miss(cause="no_cache", missed_tokens=0)
        if offered.prompt <= size:
            return Miss(cause="below_block_size", missed_tokens=0)
        if not offered.missed:
            return None
        now = _seen(prompted)
        head = now.tokens[: size * TOKEN_BYTES]
        earlier, blocks = self._history.nearest(prompted.tenant, size, prompted.chains[size])
        miss = explain(
            now,
            earlier,
            offered=offered,
            blocks_seen=blocks,
            elsewhere=self._history.another_tenants(prompted.tenant, head),
            text=prompted.text,
        )
        # Projects share their organization's cache, but each decides about its own text.
        kept = prompted.content and earlier is not None and earlier.content
        return msgspec.structs.replace(
            miss,
            around=miss.around if kept else None,
            cost_nano=_saved_nano(inquiry.price, miss.avoidable_tokens),
            prefill_ms=round(miss.avoidable_tokens / inquiry.prefill_tokens_per_s * MS_PER_S, 1),
        )


def tenant_of(salt: bytes, digest: str, model: str) -> bytes:
    """What separates prompts that may be compared."""
    return salt + f"{digest}:{model}".encode()


def _seen(prompted: Prompted) -> Seen:
    return Seen(pack(prompted.tokens), prompted.chains, prompted.tools, content=prompted.content)


def _saved_nano(price: Price, tokens: int) -> int:
    """What the price of cached tokens would have saved."""
    fresh = charge_nano(price, TokenCounts(uncached=tokens, cached=0, output=0))
    return fresh - charge_nano(price, TokenCounts(uncached=0, cached=tokens, output=0))
