"""The catalogue under /api/: what an organization may call, and whether nodes serve it now."""

import uuid
from typing import TypedDict

from django.utils import timezone
from rest_framework.response import Response

from controlplane.core.api.schema import Whole, operation
from controlplane.core.api.views import OF_ORGANIZATION, ApiView
from controlplane.core.permissions import Action
from controlplane.fleet.catalogue import Offer, offer_list
from controlplane.kernel.money import usd_from_micro
from controlplane.tenants.access import require

RATES = ("input", "cached", "output")


class ModelJson(TypedDict):
    """A model; sizes in tokens, `price` in USD per million tokens, null where it has none yet.

    `state` is `ready`, `no_node` or `no_price`; `abilities` are what all its nodes can do.
    """

    name: str
    object: str
    task: str
    state: str
    context_window: int
    max_output_tokens: int
    abilities: list[str]
    price: dict[str, str] | None


class Models(ApiView, at=f"{OF_ORGANIZATION}/models"):
    @operation(list_of=Whole(ModelJson))
    def get(self, organization_id: uuid.UUID) -> Response:
        """List the models in the catalogue with their list prices."""
        require(self.actor(), Action.CATALOG_VIEW, organization_id)
        return self.listed(offer_list(now=timezone.now(), enabled_only=True), model_json)


def model_json(offer: Offer) -> ModelJson:
    model, price = offer.model, offer.price
    paid = (
        {name: usd_from_micro(getattr(price, f"{name}_pico")) for name in RATES} if price else None
    )
    return ModelJson(
        name=model.name,
        object="catalogue_model",
        task=model.task,
        state=offer.state,
        context_window=model.context_window,
        max_output_tokens=model.output_tokens_max,
        abilities=offer.abilities,
        price=paid,
    )
