"""Reads of models, prices and pools."""

import uuid
from collections.abc import Iterable
from datetime import datetime

from controlplane.catalog.models import Model, Pool, PriceVersion
from controlplane.core.audit.entries import Actor
from controlplane.core.permissions import Action
from controlplane.core.scope import organization_scope
from controlplane.kernel.price import Price
from controlplane.tenants.access import require


def model_list(*, enabled_only: bool = False) -> list[Model]:
    rows = Model.objects.order_by("name")
    return list(rows.filter(enabled=True) if enabled_only else rows)


def models_unknown(names: Iterable[str]) -> list[str]:
    wanted = set(names)
    known = Model.objects.filter(name__in=wanted).values_list("name", flat=True)
    return sorted(wanted.difference(known))


def model_find(*, name: str) -> Model | None:
    return Model.objects.filter(name=name).first()


def pool_list() -> list[Pool]:
    return list(Pool.objects.order_by("name"))


def pool_find(*, name: str) -> Pool | None:
    return Pool.objects.filter(name=name).first()


def price_list(*, model: Model) -> list[PriceVersion]:
    """Versions that all pay, and those of single projects of the open scope; newest first."""
    return list(PriceVersion.objects.filter(model=model).order_by("-version"))


def price_list_all(*, actor: Actor, model: Model) -> list[PriceVersion]:
    """All versions, those of every tenant's projects too, newest first; for staff."""
    require(actor, Action.CATALOG_MANAGE)
    query = "SELECT * FROM price_versions_of(%s) ORDER BY version DESC"
    return list(PriceVersion.objects.raw(query, [model.id]))


def price_find(*, model: str, version: int, organization_id: uuid.UUID) -> PriceVersion | None:
    """One version of the prices of the model of that name, as the organization may see it."""
    with organization_scope([organization_id]):
        return PriceVersion.objects.filter(model__name=model, version=version).first()


def price_in_force(*, model: Model, at: datetime) -> Price | None:
    """What all pay: the version that took effect last; of two at the same moment the later one."""
    row = (
        PriceVersion.objects.filter(model=model, project=None, effective_from__lte=at)
        .order_by("-effective_from", "-version")
        .first()
    )
    if row is None:
        return None
    return Price(
        version=row.version,
        input_pico=row.input_pico,
        cached_pico=row.cached_pico,
        output_pico=row.output_pico,
    )
