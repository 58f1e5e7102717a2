"""What tokens cost. One function prices the hold, the settlement, dry runs and invoices alike."""

from __future__ import annotations

import msgspec

from controlplane.kernel.money import nano_from_pico


class Price(msgspec.Struct, frozen=True, kw_only=True):
    """One version of a model's prices, pico-USD per token (= micro-USD per million tokens)."""

    version: int
    input_pico: int
    cached_pico: int
    output_pico: int


class TokenCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Disjoint buckets: a token is counted in exactly one of them."""

    uncached: int
    cached: int
    output: int

    @classmethod
    def from_usage(cls, prompt: int, cached: int, completion: int) -> TokenCounts:
        """From wire usage, where cached lies inside prompt; raises ValueError if it does not."""
        if not 0 <= cached <= prompt or completion < 0:
            raise ValueError(f"usage prompt={prompt} cached={cached} completion={completion}")
        return cls(uncached=prompt - cached, cached=cached, output=completion)


def charge_nano(price: Price, counts: TokenCounts) -> int:
    """Cost in nano-USD, rounded once."""
    return nano_from_pico(
        counts.uncached * price.input_pico
        + counts.cached * price.cached_pico
        + counts.output * price.output_pico
    )


def hold_nano(price: Price, prompt_tokens_max: int, output_tokens_max: int) -> int:
    """Upper bound of the cost: no prompt token cached, every allowed output token generated."""
    dearest_input = max(price.input_pico, price.cached_pico)
    return nano_from_pico(prompt_tokens_max * dearest_input + output_tokens_max * price.output_pico)
