"""Adding models and publishing prices. A price is never edited: a new version takes over."""

from dataclasses import dataclass
from datetime import datetime

from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import Max
from django.utils import timezone

from controlplane.catalog.models import Model, PriceVersion
from controlplane.catalog.pools import pool_known
from controlplane.core.audit import Actor, audit_record
from controlplane.core.permissions import Action
from controlplane.tenants.access import require
from controlplane.tenants.models import User

# 1,000 USD per token; anything above it is a slip of the unit.
PRICE_PICO_MAX = 10**15


@dataclass(frozen=True, kw_only=True)
class ModelDraft:
    """What a model is added with; the names are the table's. One that embeds has no output."""

    name: str
    pool: str
    context_window: int
    output_tokens_default: int = 0
    output_tokens_max: int = 0
    task: str = "generate"
    owner: str = "sluice"


@dataclass(frozen=True, kw_only=True)
class PriceDraft:
    """Prices in pico-USD per token (= micro-USD per million tokens)."""

    input_pico: int
    cached_pico: int
    output_pico: int


def model_create(*, actor: Actor, draft: ModelDraft) -> Model:
    """Add a model; it is served once it has a price in force and a node."""
    require(actor, Action.CATALOG_MANAGE)
    made = Model(**vars(draft))
    with transaction.atomic():
        made.full_clean()
        pool = pool_known(draft.pool)
        if pool.task != draft.task:
            raise ValidationError({"pool": f"The pool {pool.name!r} is for the task {pool.task}."})
        made.save(force_insert=True)
        audit_record(
            actor, "model.create", subject=made, organization_id=None, detail=dict(vars(draft))
        )
    return made


def model_enable(*, actor: Actor, model: Model, enabled: bool) -> Model:
    """Serve a model or stop serving it."""
    require(actor, Action.CATALOG_MANAGE)
    with transaction.atomic():
        model.enabled = enabled
        model.save(update_fields=["enabled"])
        audit_record(
            actor,
            "model.enable",
            subject=model,
            organization_id=None,
            detail={"name": model.name, "enabled": enabled},
        )
    return model


def price_publish(
    *, actor: Actor, model: Model, draft: PriceDraft, effective_from: datetime | None = None
) -> PriceVersion:
    """The next version of a model's prices, from now or a later moment on."""
    require(actor, Action.CATALOG_MANAGE)
    now = timezone.now()
    if effective_from is not None and effective_from < now:
        raise ValidationError({"effective_from": "A price cannot take effect in the past."})
    for name, value in vars(draft).items():
        if not 0 <= value <= PRICE_PICO_MAX:
            raise ValidationError({name: f"Must be 0 to {PRICE_PICO_MAX} pico-USD per token."})
    if draft.cached_pico > draft.input_pico:
        raise ValidationError({"cached_pico": "Must not be above the price of uncached input."})
    with transaction.atomic():
        # The model's row is the lock that makes versions count up without gaps.
        Model.objects.select_for_update().get(id=model.id)
        last = PriceVersion.objects.filter(model=model).aggregate(last=Max("version"))["last"]
        made = PriceVersion.objects.create(
            model=model,
            version=(last or 0) + 1,
            effective_from=effective_from or now,
            created_by=actor if isinstance(actor, User) else None,
            **vars(draft),
        )
        audit_record(
            actor,
            "price.publish",
            subject=made,
            organization_id=None,
            detail={"model": model.name, "version": made.version, **vars(draft)},
        )
    return made
