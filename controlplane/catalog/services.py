"""Adding models and publishing prices, and what tokens cost to buy where someone else's server has
them.

A price is never edited: a new version takes over. A purchase price counts for the UTC day on which
it is set and the days after it; days that are past keep theirs.
"""

from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import NamedTuple

import msgspec
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone
from msgspec.structs import asdict

from controlplane.catalog.models import PERMILLE_MAX, Model, PriceVersion, PurchasePrice, Task
from controlplane.catalog.pools import serving_pool
from controlplane.core.answers import moment_text
from controlplane.core.audit.entries import Actor, audit_record
from controlplane.core.permissions import Action, organization_scope
from controlplane.core.queries import value
from controlplane.kernel.ids import public_id
from controlplane.kernel.price import PERMILLE, RATE_PICO_MAX
from controlplane.tenants.access import require
from controlplane.tenants.models import Project, User


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
    images_max: int = 0
    image_tokens_max: int = 1_280
    image_patch: int = 28


@dataclass(frozen=True, kw_only=True)
class PriceDraft:
    """Prices in pico-USD per token (= micro-USD per million tokens).

    The multipliers, in thousandths, are for requests of low and of high priority.
    """

    input_pico: int
    cached_pico: int
    output_pico: int
    batch_permille: int = PERMILLE
    priority_permille: int = PERMILLE


def model_create(*, actor: Actor, draft: ModelDraft) -> Model:
    require(actor, Action.CATALOG_MANAGE)
    with transaction.atomic():
        # One that was removed comes back, with the prices that it had.
        gone = Model.objects.exclude(removed_at=None).filter(name=draft.name, task=draft.task)
        made = gone.first() or Model()
        for name, value in {**vars(draft), "enabled": True, "removed_at": None}.items():
            setattr(made, name, value)
        made.full_clean()
        serving_pool(draft.pool, draft.task)
        made.save()
        audit_record(actor, "model.create", subject=made, detail=dict(vars(draft)))
    return made


def model_change(*, actor: Actor, draft: ModelDraft) -> Model:
    """Give the model of that name these values; raises ValidationError by field."""
    require(actor, Action.CATALOG_MANAGE)
    with transaction.atomic():
        model = Model.objects.select_for_update().get(name=draft.name)
        if model.task != draft.task:
            raise ValidationError(
                {"task": "The task of a model cannot be changed; add a new model."}
            )
        serving_pool(draft.pool, draft.task)
        for name, value in vars(draft).items():
            setattr(model, name, value)
        model.full_clean()
        model.save()
        detail = dict(vars(draft))
        audit_record(actor, "model.change", subject=model, detail=detail)
    return model


def model_enable(*, actor: Actor, model: Model, enabled: bool) -> Model:
    require(actor, Action.CATALOG_MANAGE)
    before = model.enabled
    with transaction.atomic():
        model.enabled = enabled
        model.save(update_fields=["enabled"])
        audit_record(
            actor,
            "model.enable",
            subject=model,
            detail={"name": model.name, "enabled": enabled},
            changed=({"enabled": before}, {"enabled": enabled}),
        )
    return model


def model_remove(*, actor: Actor, model: Model) -> None:
    """Take a model out of the catalogue; who asks sees to it that nothing needs it."""
    require(actor, Action.CATALOG_MANAGE)
    with transaction.atomic():
        model.enabled, model.removed_at = False, timezone.now()
        model.save(update_fields=["enabled", "removed_at"])
        facts = {"name": model.name}
        audit_record(actor, "model.remove", subject=model, detail={**facts})


def price_publish(
    *,
    actor: Actor,
    model: Model,
    draft: PriceDraft,
    effective_from: datetime | None = None,
    project: Project | None = None,
) -> PriceVersion:
    """The next version of a model's prices, from now or a later moment on.

    With a project it holds for that one alone. Requests that are in progress keep their price.
    """
    require(actor, Action.CATALOG_MANAGE)
    now = timezone.now()
    if effective_from is not None and effective_from < now:
        raise ValidationError({"effective_from": "A price cannot take effect in the past."})
    check_price(model, draft)
    return _price_add(actor, model, draft, project, PriceSpan(effective_from or now))


def price_override_end(*, actor: Actor, model: Model, project: Project) -> PriceVersion:
    """From now on the project pays what the others pay; raises ValidationError without override."""
    require(actor, Action.CATALOG_MANAGE)
    now = timezone.now()
    with organization_scope([project.organization_id]):
        Model.objects.select_for_update().get(id=model.id)
        rows = PriceVersion.objects.filter(model=model, project=project)
        rows = rows.order_by("-effective_from", "-version")
        # What is in force ends now, and what was to begin later ends where it begins.
        in_force = rows.filter(effective_from__lte=now).first()
        later = {row.effective_from: row for row in reversed(rows.filter(effective_from__gt=now))}
        going = [row for row in (in_force, *later.values()) if row and row.effective_until is None]
        if not going:
            told = f"{project.name} already pays the list price for {model.name}."
            raise ValidationError({"project": told})
        return [_price_end(actor, model, project, row, now) for row in going][0]


def _price_end(
    actor: Actor, model: Model, project: Project, row: PriceVersion, now: datetime
) -> PriceVersion:
    begins = max(now, row.effective_from)
    draft = PriceDraft(**{name: getattr(row, name) for name in PriceDraft.__annotations__})
    return _price_add(actor, model, draft, project, PriceSpan(begins, begins))


class PriceSpan(NamedTuple):
    """When a version is in force."""

    start: datetime
    until: datetime | None = None


def _price_add(
    actor: Actor, model: Model, draft: PriceDraft, project: Project | None, span: PriceSpan
) -> PriceVersion:
    with organization_scope([project.organization_id] if project else []):
        made = PriceVersion.objects.create(
            model=model,
            project_id=project.id if project else None,
            version=_next_version(model),
            effective_from=span.start,
            effective_until=span.until,
            created_by=actor if isinstance(actor, User) else None,
            **vars(draft),
        )
        audit_record(
            actor,
            "price.publish",
            subject=made,
            detail={
                "model": model.name,
                "version": made.version,
                "project": public_id("proj", project.id) if project else None,
                "effective_from": moment_text(span.start),
                "effective_until": moment_text(span.until) if span.until else None,
                **vars(draft),
            },
        )
    return made


def _next_version(model: Model) -> int:
    """The number after the last one, whoever pays that; no other is given until this commits."""
    # The model's row is the lock that makes versions count up without gaps.
    Model.objects.select_for_update().get(id=model.id)
    query = "SELECT coalesce(max(version), 0) + 1 FROM price_versions_of(%s)"
    return int(value(query, [model.id]))


def check_price(model: Model, draft: PriceDraft) -> None:
    dearest = rates_check(model, draft)
    for name in ("batch_permille", "priority_permille"):
        if not 0 <= getattr(draft, name) <= PERMILLE_MAX:
            raise ValidationError({name: f"Must be 0 to {PERMILLE_MAX} thousandths."})
        if dearest * getattr(draft, name) > RATE_PICO_MAX * PERMILLE:
            told = f"A token would cost more than {RATE_PICO_MAX} pico-USD."
            raise ValidationError({name: told})


RATES = ("input_pico", "cached_pico", "output_pico")


class PurchaseDraft(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Pico-USD per token (= micro-USD per million tokens); all 0 where nothing is bought."""

    input_pico: int
    cached_pico: int
    output_pico: int


def purchase_set(*, actor: Actor, model: Model, draft: PurchaseDraft) -> PurchasePrice:
    """From today on a model's tokens cost this; raises ValidationError that names the field."""
    require(actor, Action.CATALOG_MANAGE)
    rates_check(model, draft)
    with transaction.atomic():
        made = PurchasePrice.objects.create(
            model=model,
            from_day=datetime.now(UTC).date(),
            created_by=actor if isinstance(actor, User) else None,
            **asdict(draft),
        )
        audit_record(
            actor,
            "purchase.set",
            subject=made,
            detail={"model": model.name, "from_day": made.from_day.isoformat(), **asdict(draft)},
        )
    return made


def purchase_list(*, model: Model) -> list[PurchasePrice]:
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


def rates_check(model: Model, draft: PriceDraft | PurchaseDraft) -> int:
    """The highest rate of what a model's tokens may cost; raises ValidationError that names the
    field.
    """
    rates: dict[str, int] = {name: getattr(draft, name) for name in RATES}
    for name, rate in rates.items():
        if not 0 <= rate <= RATE_PICO_MAX:
            raise ValidationError({name: f"Must be 0 to {RATE_PICO_MAX} pico-USD per token."})
    if draft.cached_pico > draft.input_pico:
        raise ValidationError({"cached_pico": "Must not be above the price of uncached input."})
    if model.task == Task.EMBED and draft.output_pico:
        raise ValidationError({"output_pico": "An embedding model has no output price."})
    return max(rates.values())
