"""What tokens cost. One function prices the hold, the settlement, dry runs and invoices alike."""

from __future__ import annotations

import msgspec

from controlplane.kernel.money import PICO_PER_NANO, nano_from_pico
from controlplane.kernel.rules import PRIORITY_NORMAL

PERMILLE = 1_000
# What the ledger's columns hold.
COUNT_MAX = 2**31 - 1
# What a token costs at most with its multiplier: 100,000 USD per million. The largest request there
# can be, 8 answers over a window of 2**24 tokens, then costs 1.6e16 nano-USD, and a batch of 128 of
# them fits into a bigint beside a budget at its highest (4e18).
RATE_PICO_MAX = 10**11


class Price(msgspec.Struct, frozen=True, kw_only=True):
    """One version of a model's prices, pico-USD per token (= micro-USD per million tokens)."""

    version: int
    input_pico: int
    cached_pico: int
    output_pico: int


class PriceTerms(msgspec.Struct, frozen=True, kw_only=True):
    """A price, and what it is multiplied with for requests of low and of high priority.

    Multipliers are in thousandths: a batch at half the price has a `batch_permille` of 500.
    """

    price: Price
    batch_permille: int = PERMILLE
    priority_permille: int = PERMILLE

    def at(self, priority: int) -> Price:
        """What a request of that priority pays."""
        if priority == PRIORITY_NORMAL:
            return self.price
        low = priority < PRIORITY_NORMAL
        return scaled(self.price, self.batch_permille if low else self.priority_permille)


class TokenCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Disjoint buckets: a token is counted in exactly one of them."""

    uncached: int
    cached: int
    output: int

    @classmethod
    def from_usage(cls, prompt: int, cached: int, completion: int) -> TokenCounts:
        """From wire usage, where cached lies inside prompt; raises ValueError if it cannot be."""
        if not 0 <= cached <= prompt <= COUNT_MAX or not 0 <= completion <= COUNT_MAX:
            raise ValueError(f"usage prompt={prompt} cached={cached} completion={completion}")
        return cls(uncached=prompt - cached, cached=cached, output=completion)


def scaled(price: Price, permille: int) -> Price:
    """The price times `permille` / 1000; each rate rounded once, half up."""
    if permille == PERMILLE:
        return price
    half = PERMILLE // 2
    return Price(
        version=price.version,
        input_pico=(price.input_pico * permille + half) // PERMILLE,
        cached_pico=(price.cached_pico * permille + half) // PERMILLE,
        output_pico=(price.output_pico * permille + half) // PERMILLE,
    )


def charge_nano(price: Price, counts: TokenCounts) -> int:
    """Cost in nano-USD, rounded once."""
    return nano_from_pico(
        counts.uncached * price.input_pico
        + counts.cached * price.cached_pico
        + counts.output * price.output_pico
    )


def counts_within(price: Price, counts: TokenCounts, nano: int) -> TokenCounts:
    """The counts, cut where their cost passes a bound: output last in, so first to be cut."""
    if charge_nano(price, counts) <= nano:
        return counts
    room_pico = nano * PICO_PER_NANO

    def fit(tokens: int, pico: int) -> int:
        nonlocal room_pico
        kept = min(tokens, room_pico // pico) if pico else tokens
        room_pico -= kept * pico
        return kept

    return TokenCounts(
        uncached=fit(counts.uncached, price.input_pico),
        cached=fit(counts.cached, price.cached_pico),
        output=fit(counts.output, price.output_pico),
    )


def hold_nano(price: Price, prompt_tokens_max: int, output_tokens_max: int) -> int:
    """Upper bound of the cost: no prompt token cached, every allowed output token generated."""
    dearest_input = max(price.input_pico, price.cached_pico)
    return nano_from_pico(prompt_tokens_max * dearest_input + output_tokens_max * price.output_pico)
