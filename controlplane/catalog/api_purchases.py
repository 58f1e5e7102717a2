"""What models' tokens cost to buy, under /api/catalog/; for staff."""

from datetime import date
from typing import Any, TypedDict

import msgspec
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.catalog.models import Model, PurchasePrice
from controlplane.catalog.purchases import PurchaseDraft, purchase_list, purchase_set
from controlplane.core.answers import answer_of
from controlplane.core.api.schema import Whole, operation
from controlplane.core.api.views import ApiView
from controlplane.core.permissions import Action
from controlplane.kernel.ids import PurchasePriceId
from controlplane.tenants.access import require

CREATED = 201
EXAMPLE = {"input_pico": 100_000, "cached_pico": 20_000, "output_pico": 400_000}


class PurchaseBody(msgspec.Struct, forbid_unknown_fields=True):
    """Rates in pico-USD per token (= micro-USD per million tokens); all 0: nothing is bought."""

    input_pico: int
    cached_pico: int
    output_pico: int


class PurchaseJson(TypedDict):
    """A price and the UTC day from which it counts."""

    id: PurchasePriceId
    object: str
    model: str
    from_day: date
    input_pico: int
    cached_pico: int
    output_pico: int


class PurchasesView(ApiView):
    """`GET | POST models/<name>/purchases`: what was set, and another from today on."""

    step_up_methods = frozenset({"POST"})

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        require(self.actor(), Action.CATALOG_MANAGE)

    @operation(list_of=Whole(PurchaseJson))
    def get(self, request: Request, model: str) -> Response:
        """List the purchase prices of a model."""
        found = purchase_list(model=Model.objects.get(name=model))
        return self.listed(found, lambda row: purchase_json(row, model))

    @operation(body=PurchaseBody, answer=PurchaseJson, status=CREATED, example=EXAMPLE)
    def post(self, request: Request, model: str) -> Response:
        """Set a purchase price; past days do not change."""
        wanted = PurchaseDraft(**msgspec.structs.asdict(self.body(PurchaseBody)))
        found = Model.objects.get(name=model)
        made = purchase_set(actor=self.actor(), model=found, draft=wanted)
        return Response(purchase_json(made, model), status=CREATED)


def purchase_json(row: PurchasePrice, model: str) -> PurchaseJson:
    return answer_of(PurchaseJson, row, object="purchase_price", model=model)
