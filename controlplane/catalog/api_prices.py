"""Prices under /api/catalog/, for staff: what models are sold for, and what their tokens cost."""

import uuid
from datetime import date, datetime
from typing import Annotated, Any, TypedDict

import msgspec
from django.core.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.catalog import services
from controlplane.catalog.models import Model, PriceVersion, PurchasePrice
from controlplane.catalog.selectors import price_list_all
from controlplane.core.answers import answer_of
from controlplane.core.api.schema import CREATED, Whole, operation
from controlplane.core.api.views import ApiView
from controlplane.core.permissions import Action
from controlplane.kernel.ids import PriceVersionId, ProjectId, PurchasePriceId, kind
from controlplane.kernel.price import PERMILLE
from controlplane.tenants.access import require
from controlplane.tenants.models import Project
from controlplane.tenants.selectors import project_share

EXAMPLE = {
    "input_pico": 150_000,
    "cached_pico": 30_000,
    "output_pico": 600_000,
    "batch_permille": 500,
}
PURCHASE_EXAMPLE = {"input_pico": 100_000, "cached_pico": 20_000, "output_pico": 400_000}


class PriceBody(msgspec.Struct, forbid_unknown_fields=True):
    """Rates in pico-USD per token (= micro-USD per million tokens); multipliers in thousandths.

    `batch_permille` is for requests of low priority, `priority_permille` for those of high. With an
    `organization` and one of its projects as `project` only that pays this.
    Without `effective_from` it holds from now on.
    """

    input_pico: int
    cached_pico: int
    output_pico: int
    batch_permille: int = PERMILLE
    priority_permille: int = PERMILLE
    effective_from: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    organization: Annotated[uuid.UUID, kind("org")] | None = None
    project: Annotated[uuid.UUID, kind("proj")] | None = None


class EndBody(msgspec.Struct, forbid_unknown_fields=True):
    """Whose override ends."""

    organization: Annotated[uuid.UUID, kind("org")]
    project: Annotated[uuid.UUID, kind("proj")]


class PriceJson(TypedDict):
    """One version; it never changes. With `effective_until` an override that ends."""

    id: PriceVersionId
    object: str
    model: str
    version: int
    project: ProjectId | None
    input_pico: int
    cached_pico: int
    output_pico: int
    batch_permille: int
    priority_permille: int
    effective_from: datetime
    effective_until: datetime | None


class PriceView(ApiView, under="api/catalog/models/<path:model>/"):
    """Rights come before bodies."""

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        require(self.actor(), Action.CATALOG_MANAGE)


class Prices(PriceView, at="prices"):
    @operation(list_of=Whole(PriceJson))
    def get(self, model: str) -> Response:
        """List price versions, including those of single projects."""
        found = price_list_all(actor=self.actor(), model=Model.objects.get(name=model))
        return self.listed(found, lambda row: price_json(row, model))

    @operation(body=PriceBody, answer={CREATED: PriceJson}, example=EXAMPLE, step_up=True)
    def post(self, wanted: PriceBody, model: str) -> PriceJson:
        """Publish a price; running requests keep their price."""
        made = services.price_publish(
            actor=self.actor(),
            model=Model.objects.get(name=model),
            draft=msgspec.convert(wanted, services.PriceDraft, from_attributes=True),
            effective_from=wanted.effective_from,
            project=self._project(wanted),
        )
        return price_json(made, model)

    def _project(self, wanted: PriceBody) -> Project | None:
        if wanted.project is None and wanted.organization is None:
            return None
        if wanted.project is None or wanted.organization is None:
            raise ValidationError(
                {"project": "Requires the organization that the project belongs to."}
            )
        return project_share(
            actor=self.actor(), project_id=wanted.project, organization_id=wanted.organization
        )


class OverrideEnd(PriceView, at="prices/end"):
    @operation(body=EndBody, answer={CREATED: PriceJson}, step_up=True)
    def post(self, wanted: EndBody, model: str) -> PriceJson:
        """End a project's price; returns the version that ends it."""
        project = project_share(
            actor=self.actor(), project_id=wanted.project, organization_id=wanted.organization
        )
        found = Model.objects.get(name=model)
        made = services.price_override_end(actor=self.actor(), model=found, project=project)
        return price_json(made, model)


def price_json(row: PriceVersion, model: str) -> PriceJson:
    return answer_of(PriceJson, row, object="price_version", model=model, project=row.project_id)


class PurchaseJson(TypedDict):
    """A price and the UTC day from which it counts."""

    id: PurchasePriceId
    object: str
    model: str
    from_day: date
    input_pico: int
    cached_pico: int
    output_pico: int


class PurchasesView(PriceView, at="purchases"):
    @operation(list_of=Whole(PurchaseJson))
    def get(self, model: str) -> Response:
        """List the purchase prices of a model."""
        found = services.purchase_list(model=Model.objects.get(name=model))
        return self.listed(found, lambda row: purchase_json(row, model))

    @operation(
        body=services.PurchaseDraft,
        answer={CREATED: PurchaseJson},
        example=PURCHASE_EXAMPLE,
        step_up=True,
    )
    def post(self, wanted: services.PurchaseDraft, model: str) -> PurchaseJson:
        """Set a purchase price; past days do not change."""
        found = Model.objects.get(name=model)
        made = services.purchase_set(actor=self.actor(), model=found, draft=wanted)
        return purchase_json(made, model)


def purchase_json(row: PurchasePrice, model: str) -> PurchaseJson:
    return answer_of(PurchaseJson, row, object="purchase_price", model=model)
