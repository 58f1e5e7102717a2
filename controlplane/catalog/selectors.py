"""Reads of models, prices and pools."""

from datetime import datetime

from controlplane.catalog.models import Model, Pool, PriceVersion
from controlplane.kernel.price import Price


def model_list(*, enabled_only: bool = False) -> list[Model]:
    """Models by name."""
    rows = Model.objects.order_by("name")
    return list(rows.filter(enabled=True) if enabled_only else rows)


def model_find(*, name: str) -> Model | None:
    """The model of that name."""
    return Model.objects.filter(name=name).first()


def pool_list() -> list[Pool]:
    """Pools by name."""
    return list(Pool.objects.order_by("name"))


def pool_find(*, name: str) -> Pool | None:
    """The pool of that name."""
    return Pool.objects.filter(name=name).first()


def price_list(*, model: Model) -> list[PriceVersion]:
    """All versions of a model's prices, those of single projects too, newest first."""
    return list(PriceVersion.objects.filter(model=model).order_by("-version"))


def price_find(*, model: str, version: int) -> PriceVersion | None:
    """One version of the prices of the model of that name."""
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
