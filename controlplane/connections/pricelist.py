"""What well-known models cost to buy, as shipped: a dated start that staff change."""

from functools import cache
from pathlib import Path

import msgspec

from controlplane.kernel.money import micro_from_usd

FILE = Path(__file__).with_name("prices.json")


class ListedModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A provider's model; sizes in tokens, prices in USD per million tokens."""

    upstream: str
    context_window: int
    output_max: int
    vision: bool
    input: str
    cached: str
    output: str

    @property
    def rates(self) -> dict[str, int]:
        """Pico-USD per token, as purchase prices have them."""
        return {
            f"{name}_pico": micro_from_usd(getattr(self, name))
            for name in ("input", "cached", "output")
        }


class PriceList(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The models of one provider, the day on which its page said so, and that page."""

    kind: str
    as_of: str
    source: str
    models: tuple[ListedModel, ...]


class _File(msgspec.Struct):
    lists: tuple[PriceList, ...]


@cache
def price_lists() -> tuple[PriceList, ...]:
    return msgspec.json.decode(FILE.read_bytes(), type=_File).lists


def price_list_of(kind: str) -> PriceList | None:
    """The list for connections of a kind; Azure sells OpenAI's models."""
    wanted = "openai" if kind == "azure" else kind
    return next((one for one in price_lists() if one.kind == wanted), None)
