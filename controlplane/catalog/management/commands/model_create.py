"""`manage.py model_create`: a model with its first price. A door to the services, no rules."""

from argparse import ArgumentTypeError
from decimal import Decimal, InvalidOperation
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import transaction

from controlplane.catalog.models import Task
from controlplane.catalog.services import ModelDraft, PriceDraft, model_create, price_publish
from controlplane.core.arguments import arguments_named
from controlplane.core.audit.entries import OPERATOR
from controlplane.kernel.money import MICRO_PER_USD
from controlplane.kernel.price import RATE_PICO_MAX

TOKENS, USD = "TOKENS", "USD"
# Needed of every model, and of those that generate; one that embeds has no output and no cache.
ALWAYS = {
    "--context-window": (
        TOKENS,
        "context window in tokens (prompt and output), or tokens per input for embedding models",
    ),
    "--input-usd": (USD, "price of uncached input"),
}
GENERATE = {
    "--output-default": (TOKENS, "default output limit, in tokens"),
    "--output-max": (TOKENS, "maximum output limit, in tokens"),
    "--cached-usd": (USD, "price of cached input"),
    "--output-usd": (USD, "price of output"),
}


class Command(BaseCommand):
    """Gateways serve it within two seconds, as soon as a node of its pool has it."""

    help = "Add a model to the catalog with a price that takes effect immediately."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", metavar="NAME", help="name that nodes and clients use")
        parser.add_argument("--images", type=int, default=0, help="most images in a request")
        parser.add_argument("--pool", default="default", help="pool of nodes that serve it")
        parser.add_argument(
            "--task", choices=Task.values, default=Task.GENERATE, help="what it does"
        )
        for flag, (unit, text) in {**ALWAYS, **GENERATE}.items():
            if unit == USD:
                text += ", USD per million tokens"
            if flag in GENERATE:
                text += " (task generate)"
            kind = int if unit == TOKENS else _pico
            needed = flag in ALWAYS
            parser.add_argument(flag, type=kind, required=needed, metavar=unit, help=text)

    def handle(self, *args: Any, **options: Any) -> None:
        task, input_pico = options["task"], options["input_usd"]
        _check_task(task, options)
        draft = ModelDraft(
            name=options["name"],
            pool=options["pool"],
            context_window=options["context_window"],
            output_tokens_default=options["output_default"] or 0,
            output_tokens_max=options["output_max"] or 0,
            task=task,
            images_max=options["images"],
        )
        embeds = task == Task.EMBED
        price = PriceDraft(
            input_pico=input_pico,
            cached_pico=input_pico if embeds else options["cached_usd"],
            output_pico=0 if embeds else options["output_usd"],
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
        self.stdout.write(f"Created {model.name} in the pool {model.pool!r}.")


def _check_task(task: str, options: dict[str, Any]) -> None:
    for flag in GENERATE:
        given = options[flag.removeprefix("--").replace("-", "_")] is not None
        if given and task == Task.EMBED:
            raise CommandError(f"{flag}: not allowed for an embedding model")
        if not given and task == Task.GENERATE:
            raise CommandError(f"{flag}: required for a generation model")


def _pico(text: str) -> int:
    # Micro-USD per million tokens are pico-USD per token.
    try:
        pico = Decimal(text) * MICRO_PER_USD
    except InvalidOperation:
        raise ArgumentTypeError(f"must be an amount in USD, not {text!r}") from None
    if not pico.is_finite() or not 0 <= pico <= RATE_PICO_MAX or pico != int(pico):
        raise ArgumentTypeError(
            f"must be 0 to {RATE_PICO_MAX // MICRO_PER_USD} with at most six places, not {text!r}"
        )
    return int(pico)
