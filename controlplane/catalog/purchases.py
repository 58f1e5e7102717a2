"""What tokens of a model cost to buy, where a server of someone else's serves it.

A price counts for the UTC day on which it is set and the days after it; days that are past keep
theirs.
"""

from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, date, datetime

from django.core.exceptions import ValidationError
from django.db import transaction

from controlplane.catalog.models import Model, PurchasePrice, Task
from controlplane.core.audit.entries import Actor, audit_record
from controlplane.core.permissions import Action
from controlplane.kernel.price import RATE_PICO_MAX
from controlplane.tenants.access import require
from controlplane.tenants.models import User


@dataclass(frozen=True, kw_only=True)
class PurchaseDraft:
    """Pico-USD per token (= micro-USD per million tokens); all 0 where nothing is bought."""

    input_pico: int
    cached_pico: int
    output_pico: int


def purchase_set(*, actor: Actor, model: Model, draft: PurchaseDraft) -> PurchasePrice:
    """From today on a model's tokens cost this; raises ValidationError that names the field."""
    require(actor, Action.CATALOG_MANAGE)
    _check(model, draft)
    with transaction.atomic():
        made = PurchasePrice.objects.create(
            model=model,
            from_day=datetime.now(UTC).date(),
            created_by=actor if isinstance(actor, User) else None,
            **vars(draft),
        )
        audit_record(
            actor,
            "purchase.set",
            subject=made,
            organization_id=None,
            detail={"model": model.name, "from_day": made.from_day.isoformat(), **vars(draft)},
        )
    return made


def purchase_list(*, model: Model) -> list[PurchasePrice]:
    """All that was set for a model, newest first."""
    return list(PurchasePrice.objects.filter(model=model).order_by("-from_day", "-id"))


def purchase_now(*, model: Model) -> PurchasePrice | None:
    return next(iter(purchase_list(model=model)), None)


class Purchases:
    def __init__(self) -> None:
        self._by_model: dict[str, list[PurchasePrice]] = defaultdict(list)
        rows = PurchasePrice.objects.select_related("model").order_by("-from_day", "-id")
        for row in rows:
            self._by_model[row.model.name].append(row)

    def __bool__(self) -> bool:
        return bool(self._by_model)

    def of(self, model: str, day: date) -> PurchasePrice | None:
        """What counted on that day; None where nothing was said."""
        rows = self._by_model.get(model, ())
        return next((row for row in rows if row.from_day <= day), None)


def _check(model: Model, draft: PurchaseDraft) -> None:
    for name, rate in vars(draft).items():
        if not 0 <= rate <= RATE_PICO_MAX:
            raise ValidationError({name: f"Must be 0 to {RATE_PICO_MAX} pico-USD per token."})
    if draft.cached_pico > draft.input_pico:
        raise ValidationError({"cached_pico": "Must not be above the price of uncached input."})
    if model.task == Task.EMBED and draft.output_pico:
        raise ValidationError({"output_pico": "An embedding model has no output price."})
