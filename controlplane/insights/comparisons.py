"""Comparisons that were run: kept whole, read newest first; what models to compare by default."""

from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec
from django.core.exceptions import ValidationError

from controlplane.catalog.models import Task
from controlplane.catalog.selectors import model_list, pool_list, price_in_force
from controlplane.core.audit.entries import Actor
from controlplane.core.permissions import Action
from controlplane.fleet.overview import fleet_view
from controlplane.insights.compare import Cards, Setup, WayResult
from controlplane.insights.models import Comparison
from controlplane.tenants.access import require

SHOWN_MAX = 20
NANO_PER_MICRO = 1_000
S_PER_HOUR = 3_600


@dataclass(frozen=True)
class KeptComparison:
    at: datetime
    setup: Setup
    ways: list[WayResult]


def comparison_save(*, actor: Actor, setup: Setup, ways: list[WayResult]) -> Comparison:
    require(actor, Action.FLEET_MANAGE)
    return Comparison.objects.create(
        setup=msgspec.to_builtins(setup), ways=msgspec.to_builtins(ways)
    )


def comparison_list() -> list[KeptComparison]:
    """The newest; nothing in them is a tenant's."""
    return [
        KeptComparison(
            row.created_at,
            msgspec.convert(row.setup, Setup),
            msgspec.convert(row.ways, list[WayResult]),
        )
        for row in Comparison.objects.order_by("-id")[:SHOWN_MAX]
    ]


def compared_models(*, actor: Actor, large: str | None, small: str | None) -> tuple[str, str]:
    """Those named, else the dearest and the cheapest output that is served.

    Raises ValidationError that names the argument.
    """
    now = datetime.now(UTC)
    served = {
        offer["model"]
        for view in fleet_view(actor=actor, now=now)
        for node in view.nodes
        if node.ready
        for offer in node.node.facts.get("offers", [])
    }
    priced = {}
    for model in model_list():
        price = price_in_force(model=model, at=now)
        if model.name in served and model.task == Task.GENERATE and price is not None:
            priced[model.name] = price.output_pico
    if not priced:
        raise ValidationError({"large": "No node serves a generation model that has a price."})
    for argument, name in (("large", large), ("small", small)):
        if name is not None and name not in priced:
            known = ", ".join(sorted(priced))
            raise ValidationError({argument: f"{name!r} is not one of {known}."})
    order = sorted(priced, key=lambda name: (priced[name], name))
    return large or order[-1], small or order[0]


def cards_of(*, actor: Actor) -> dict[str, Cards | None]:
    """By model, what a second of one of its nodes costs; None where no one has said."""
    prices = {
        pool.name: pool.cards_per_node * pool.card_hour_micro * NANO_PER_MICRO // S_PER_HOUR
        for pool in pool_list()
    }
    found: dict[str, Cards | None] = {}
    for view in fleet_view(actor=actor, now=datetime.now(UTC)):
        nano = prices.get(view.pool.name, 0)
        for model in view.models:
            found[model] = Cards(nano, view.load.nodes_ready) if nano else None
    return found
