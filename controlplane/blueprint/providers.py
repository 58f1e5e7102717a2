"""Connections in a document: what they are now, how they are changed, and where keys are read."""

import os
from collections.abc import Iterable
from pathlib import Path

from django.core.exceptions import ValidationError

from controlplane.blueprint import things
from controlplane.blueprint.applying import Applying
from controlplane.catalog.models import Model
from controlplane.catalog.selectors import model_find
from controlplane.catalog.services import PurchaseDraft, model_enable, purchase_now
from controlplane.connections.keys import (
    KEYS_ACTIVE_MAX,
    SECRET_CHARS,
    key_add,
    key_opened,
    key_retire,
    keys_active,
)
from controlplane.connections.models import Connection
from controlplane.connections.offers import OfferDraft, connection_remove, offers_of, offers_set
from controlplane.connections.services import (
    URL_DEFAULTS,
    ConnectionDraft,
    connection_change,
    connection_create,
    connection_enable,
)
from controlplane.core.seal import BrokenSeal

KEY = "key"
_DRAFT = ("kind", "url", "api_version", "region")


def connections_now() -> dict[things.Key, things.Fields]:
    """All, without their keys: of those not even where they were read is kept."""
    return {
        (things.CONNECTION, row.name): {
            **{name: getattr(row, name) for name in (*_DRAFT, "enabled")},
            "models": {offer.model.name: offer.upstream for offer in offers_of(row)},
        }
        for row in Connection.objects.filter(removed_at=None).order_by("name")
    }


def key_read(source: things.Fields) -> str:
    """The secret that the document leads to; only for who may read this host's files."""
    variable, file = source.get("env"), source.get("file")
    if (variable is None) == (file is None):
        raise ValidationError({KEY: "Must have `env` or `file`."})
    if variable is not None:
        secret = os.environ.get(variable, "").strip()
        if not secret:
            raise ValidationError({f"{KEY}.env": f"The variable {variable} is not set."})
        return secret
    try:
        with Path(str(file)).open(encoding="ascii") as opened:
            return opened.read(SECRET_CHARS[1] + 2).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ValidationError({f"{KEY}.file": f"Cannot be read: {error}."}) from error


def key_is_used(name: str, secret: str) -> bool:
    """Whether it is the newest key of the connection; not where that cannot be opened any more."""
    key = keys_active(_connection(name)).last()
    try:
        return key is not None and key_opened(key) == secret
    except BrokenSeal:
        return False


def connection_step(step: Applying) -> None:
    name = step.key[-1]
    fields = {each: step.after[each] for each in _DRAFT if each in step.after}
    if "kind" not in fields:
        raise ValidationError({"kind": "Required for a new connection."})
    fields.setdefault("url", URL_DEFAULTS.get(fields["kind"], ""))
    draft = ConnectionDraft(name=name, **fields)
    if step.before is None:
        connection_create(actor=step.actor, draft=draft)
    elif step.changed(*_DRAFT):
        connection_change(actor=step.actor, connection=_connection(name), draft=draft)
    if step.secret and (step.before is None or not key_is_used(name, step.secret)):
        _add_key(step, _connection(name))
    if step.changed("models"):
        _offer(step, _connection(name), step.after["models"])
    if step.changed("enabled") and (step.before or not step.after["enabled"]):
        found, enabled = _connection(name), step.after["enabled"]
        connection_enable(actor=step.actor, connection=found, enabled=enabled)


def connection_absent(step: Applying) -> None:
    connection_remove(actor=step.actor, connection=_connection(step.key[-1]))


def _add_key(step: Applying, connection: Connection) -> None:
    """The key before it stays beside it; an older one makes room."""
    active = list(keys_active(connection))
    for key in active[: len(active) + 1 - KEYS_ACTIVE_MAX]:
        key_retire(actor=step.actor, connection=connection, key_id=key.id)
    with things.below(KEY):
        key_add(actor=step.actor, connection=connection, secret=step.secret)


def _offer(step: Applying, connection: Connection, wanted: dict[str, str]) -> None:
    """Sizes and prices are the models' own, under `models`, and so is whether they are enabled."""
    models = [_model(name) for name in sorted(wanted)]
    off = [model for model in models if not model.enabled]
    drafts = [_draft(model, wanted[model.name]) for model in models]
    offers_set(actor=step.actor, connection=connection, drafts=drafts)
    for model in _again(off):
        model_enable(actor=step.actor, model=model, enabled=False)


def _draft(model: Model, upstream: str) -> OfferDraft:
    bought = purchase_now(model=model)
    rates = {name: getattr(bought, name) for name in PurchaseDraft.__struct_fields__ if bought}
    return OfferDraft(
        upstream=upstream,
        model=model.name,
        context_window=model.context_window,
        output_max=model.output_tokens_max,
        vision=model.images_max > 0,
        purchase=PurchaseDraft(**rates) if bought else None,
    )


def _model(name: str) -> Model:
    found = model_find(name=name)
    if found is None:
        raise ValidationError({"models": f"Model {name!r} not found."})
    return found


def _again(models: Iterable[Model]) -> list[Model]:
    return [_model(model.name) for model in models]


def _connection(name: str) -> Connection:
    return Connection.objects.get(name=name, removed_at=None)
