"""`manage.py model_create`: a model with its first price. A door to the services, no rules."""

from argparse import ArgumentTypeError
from decimal import Decimal, InvalidOperation
from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.db import transaction

from controlplane.catalog.services import (
    PRICE_PICO_MAX,
    ModelDraft,
    PriceDraft,
    model_create,
    price_publish,
)
from controlplane.core.arguments import arguments_named
from controlplane.core.audit import OPERATOR
from controlplane.kernel.money import MICRO_PER_USD

COUNTS = {
    "--context-window": "tokens of prompt and output together",
    "--output-default": "output tokens of a request that names no limit",
    "--output-max": "output tokens that a request may ask for",
}
PRICES = {
    "--input-usd": "price of uncached input",
    "--cached-usd": "price of cached input",
    "--output-usd": "price of output",
}


class Command(BaseCommand):
    """Gateways serve it within two seconds, as soon as a node of its pool has it."""

    help = "Add a model to the catalog with a price that is in force at once."

    def add_arguments(self, parser: CommandParser) -> None:
        """Its name, its pool, its bounds and its prices."""
        parser.add_argument("name", metavar="NAME", help="as nodes and clients say it")
        parser.add_argument("--pool", default="default", help="nodes that serve it")
        for flag, text in COUNTS.items():
            parser.add_argument(flag, type=int, required=True, metavar="TOKENS", help=text)
        for flag, text in PRICES.items():
            text = f"{text}, USD per million tokens"
            parser.add_argument(flag, type=_pico, required=True, metavar="USD", help=text)

    def handle(self, *args: Any, **options: Any) -> None:
        """Make both or none."""
        draft = ModelDraft(
            name=options["name"],
            pool=options["pool"],
            context_window=options["context_window"],
            output_tokens_default=options["output_default"],
            output_tokens_max=options["output_max"],
        )
        price = PriceDraft(
            input_pico=options["input_usd"],
            cached_pico=options["cached_usd"],
            output_pico=options["output_usd"],
        )
        bounds = {"__all__": "--context-window, --output-default, --output-max"}
        with (
            transaction.atomic(),
            arguments_named(
                name="NAME",
                pool="--pool",
                context_window="--context-window",
                output_tokens_default="--output-default",
                output_tokens_max="--output-max",
                cached_pico="--cached-usd",
                **bounds,
            ),
        ):
            model = model_create(actor=OPERATOR, draft=draft)
            price_publish(actor=OPERATOR, model=model, draft=price)
        self.stdout.write(f"Made {model.name} in the pool {model.pool!r}.")


def _pico(text: str) -> int:
    # Micro-USD per million tokens are pico-USD per token.
    try:
        pico = Decimal(text) * MICRO_PER_USD
    except InvalidOperation:
        raise ArgumentTypeError(f"must be an amount in USD, not {text!r}") from None
    if not pico.is_finite() or not 0 <= pico <= PRICE_PICO_MAX or pico != int(pico):
        raise ArgumentTypeError(
            f"must be 0 to {PRICE_PICO_MAX // MICRO_PER_USD} with at most six places, not {text!r}"
        )
    return int(pico)
