"""Which models a connection serves, what they are called here, cost to buy and are sold for."""

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime

import msgspec
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone

from controlplane.catalog.models import Model
from controlplane.catalog.selectors import model_find, prices_in_force
from controlplane.catalog.services import (
    ModelDraft,
    PriceDraft,
    PurchaseDraft,
    model_change,
    model_create,
    model_enable,
    price_publish,
    purchase_now,
    purchase_set,
)
from controlplane.connections.models import Connection, ConnectionModel
from controlplane.connections.services import POOL, connection_erase
from controlplane.core.audit.entries import Actor, audit_record
from controlplane.core.permissions import Action
from controlplane.fleet.models import ModelDigest
from controlplane.fleet.services import digest_decide
from controlplane.tenants.access import require
from inference.contract.frames import MODELS_MAX

OFFERS_MAX = 50
OUTPUT_DEFAULT = 4_096
IMAGES_MAX = 20
RATES = PurchaseDraft.__struct_fields__


class OfferDraft(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model of the provider, `upstream`, as it is served here under the name `model`.

    `purchase` is what its tokens cost to buy from today (UTC) on, `sale` what all pay for it from
    now on; without one of them that price stays as it is.
    """

    upstream: str
    model: str
    context_window: int
    output_max: int
    vision: bool = False
    purchase: PurchaseDraft | None = None
    sale: PurchaseDraft | None = None


def offers_of(connection: Connection) -> list[ConnectionModel]:
    """What it serves, by the name here."""
    rows = ConnectionModel.objects.filter(connection=connection, withdrawn_at=None)
    return list(rows.select_related("model").order_by("model__name"))


def offers_set(*, actor: Actor, connection: Connection, drafts: Sequence[OfferDraft]) -> None:
    """Serve these models and no others; raises ValidationError that names place and field.

    One that is new to the catalogue is added; one that is withdrawn is switched off.
    """
    require(actor, Action.CATALOG_MANAGE)
    if len(drafts) > OFFERS_MAX:
        raise ValidationError({"models": f"At most {OFFERS_MAX} models of one connection."})
    if len({draft.model for draft in drafts}) < len(drafts):
        raise ValidationError({"models": "Each needs a name of its own."})
    with transaction.atomic():
        now = Connection.objects.select_for_update().get(id=connection.id, removed_at=None)
        kept = set()
        for place, draft in enumerate(drafts):
            with _at(f"models[{place}]"):
                kept.add(_offer(actor, now, draft))
        for row in offers_of(now):
            if row.model_id not in kept:
                _withdraw(actor, row)
        # One node serves all of them.
        if ConnectionModel.objects.filter(withdrawn_at=None).count() > MODELS_MAX:
            told = f"At most {MODELS_MAX} models of all connections."
            raise ValidationError({"models": told})


def connection_remove(*, actor: Actor, connection: Connection) -> None:
    """Withdraw its models, which are switched off, and forget its keys and its name."""
    require(actor, Action.CATALOG_MANAGE)
    with transaction.atomic():
        now = Connection.objects.select_for_update().get(id=connection.id, removed_at=None)
        for row in offers_of(now):
            _withdraw(actor, row)
        connection_erase(actor, now)


@contextmanager
def _at(place: str) -> Iterator[None]:
    """What is wrong below, with the place in the list in front of the field."""
    try:
        yield
    except ValidationError as error:
        fields = error.error_dict if hasattr(error, "error_dict") else {"": error.error_list}
        raise ValidationError(
            {f"{place}.{name}".rstrip("."): told for name, told in fields.items()}
        ) from error


def _offer(actor: Actor, connection: Connection, draft: OfferDraft) -> uuid.UUID:
    model = _model(actor, draft)
    row = ConnectionModel.objects.filter(model=model, withdrawn_at=None).first()
    if row is not None and row.connection_id != connection.id:
        told = f"{model.name!r} is served by the connection {row.connection.name!r}."
        raise ValidationError({"model": told})
    if row is None or row.upstream != draft.upstream:
        if draft.purchase is None and purchase_now(model=model) is not None:
            told = "Its tokens were bought elsewhere before: say what they cost here, or 0."
            raise ValidationError({"purchase": told})
        if row is not None:
            row.withdrawn_at = timezone.now()
            row.save(update_fields=["withdrawn_at"])
        made = ConnectionModel(connection=connection, model=model, upstream=draft.upstream)
        made.full_clean()
        made.save(force_insert=True)
        # Who chooses a model lets the connector serve it: its node takes the text of requests.
        digest, _ = ModelDigest.objects.get_or_create(model=model.name, digest="")
        digest_decide(actor=actor, digest=digest, approved=True)
        facts = {"connection": connection.name, "model": model.name, "upstream": draft.upstream}
        audit_record(actor, "connection.offer", subject=connection, detail={**facts})
    _price(actor, model, draft)
    return model.id


def _model(actor: Actor, draft: OfferDraft) -> Model:
    """The catalogue's model, added or changed to what is asked for, and switched on."""
    known = model_find(name=draft.model)
    if known is not None and known.pool != POOL:
        told = f"{known.name!r} is served from the pool {known.pool!r}; choose another name."
        raise ValidationError({"model": told})
    images = (known.images_max if known else 0) or IMAGES_MAX
    if not 1 <= draft.output_max < draft.context_window:
        told = "Must be at least 1, and less than the context window."
        raise ValidationError({"output_max": told})
    default = known.output_tokens_default if known else OUTPUT_DEFAULT
    wanted = ModelDraft(
        name=draft.model,
        pool=POOL,
        context_window=draft.context_window,
        output_tokens_default=min(default, draft.output_max),
        output_tokens_max=draft.output_max,
        owner=known.owner if known else "sluice",
        images_max=images if draft.vision else 0,
    )
    if known is None:
        return model_create(actor=actor, draft=wanted)
    if any(getattr(known, name) != value for name, value in vars(wanted).items()):
        known = model_change(actor=actor, draft=wanted)
    return known if known.enabled else model_enable(actor=actor, model=known, enabled=True)


def _price(actor: Actor, model: Model, draft: OfferDraft) -> None:
    """Set what differs from the prices there are."""
    if draft.purchase is not None and not _same(purchase_now(model=model), draft.purchase):
        with _at("purchase"):
            purchase_set(actor=actor, model=model, draft=draft.purchase)
    price = prices_in_force(at=datetime.now(UTC)).get(model.id)
    if draft.sale is None or _same(price, draft.sale):
        return
    times = {
        name: getattr(price, name) for name in ("batch_permille", "priority_permille") if price
    }
    with _at("sale"):
        sale = PriceDraft(**msgspec.structs.asdict(draft.sale), **times)
        price_publish(actor=actor, model=model, draft=sale)


def _same(row: object, rates: PurchaseDraft) -> bool:
    return all(getattr(row, name, None) == getattr(rates, name) for name in RATES)


def _withdraw(actor: Actor, row: ConnectionModel) -> None:
    row.withdrawn_at = timezone.now()
    row.save(update_fields=["withdrawn_at"])
    facts = {"connection": row.connection.name, "model": row.model.name}
    audit_record(actor, "connection.withdraw", subject=row.connection, detail={**facts})
    model_enable(actor=actor, model=row.model, enabled=False)
