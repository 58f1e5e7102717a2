"""Adding a model in one go: to the catalogue, with its price, and with what is to serve it."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum

from django.core.exceptions import ValidationError
from django.db import transaction

from controlplane.catalog.models import Model, Task
from controlplane.catalog.selectors import model_find
from controlplane.catalog.services import (
    ModelDraft,
    PriceDraft,
    PurchaseDraft,
    model_create,
    price_publish,
)
from controlplane.connections.keys import key_add
from controlplane.connections.models import ProviderKind
from controlplane.connections.offers import OfferDraft, offers_set
from controlplane.connections.services import ConnectionDraft, connection_create
from controlplane.core.audit.entries import Actor
from controlplane.hosts.models import HOST_CHARS_MAX
from controlplane.hosts.services import DeploymentDraft, deployment_create

# What services call some fields, and what they are called here.
_FIELDS = {
    "url": "source",
    "source_name": "source",
    "window": "context_window",
    "output_max": "output_tokens_max",
    "model": "name",
}


class Server(StrEnum):
    """What serves a new model: a node that staff start, hosts with an agent, another server."""

    NODE = "node"
    HUB = "hub"
    FOLDER = "folder"
    URL = "url"


@dataclass(frozen=True, kw_only=True)
class NewModel:
    """What is asked for. `source` is the hub's repository, the folder, or the URL of the server.

    `upstream` is its name there where it is another one, `secret` the key of the server.
    """

    draft: ModelDraft
    price: PriceDraft | None
    server: Server = Server.NODE
    source: str = ""
    upstream: str = ""
    secret: str = ""


@transaction.atomic
def model_add(*, actor: Actor, new: NewModel) -> Model:
    """The model, priced and about to be served; raises ValidationError by field."""
    if new.server == Server.URL:
        return _connected(actor, new)
    made = model_create(actor=actor, draft=new.draft)
    if new.price is not None:
        price_publish(actor=actor, model=made, draft=new.price)
    if new.server in (Server.HUB, Server.FOLDER):
        draft = DeploymentDraft(
            model=made.name,
            source_kind=new.server.value,
            source_name=new.source,
            window=made.context_window,
        )
        with _told():
            deployment_create(actor=actor, name=_plain(made.name), draft=draft)
    return made


def _connected(actor: Actor, new: NewModel) -> Model:
    """Served by a server of others under a connection of its own, named as the model is."""
    draft = new.draft
    if draft.task != Task.GENERATE:
        raise ValidationError({"task": "A connection serves models that generate text alone."})
    if model_find(name=draft.name) is not None:
        raise ValidationError({"name": f"{draft.name!r} is in the catalogue already."})
    with _told():
        to = ConnectionDraft(name=_plain(draft.name), kind=ProviderKind.OTHER, url=new.source)
        made = connection_create(actor=actor, draft=to)
        if new.secret:
            key_add(actor=actor, connection=made, secret=new.secret)
        offers_set(actor=actor, connection=made, drafts=[_offer(new)])
    return Model.objects.get(name=draft.name)


def _offer(new: NewModel) -> OfferDraft:
    draft, rates = new.draft, PurchaseDraft.__struct_fields__
    return OfferDraft(
        upstream=new.upstream or draft.name,
        model=draft.name,
        context_window=draft.context_window,
        output_max=draft.output_tokens_max,
        vision=draft.images_max > 0,
        sale=PurchaseDraft(**{each: getattr(new.price, each) for each in rates})
        if new.price
        else None,
    )


def _plain(name: str) -> str:
    """What a deployment or connection of the model is called."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:HOST_CHARS_MAX].strip("-")


@contextmanager
def _told() -> Iterator[None]:
    """What is wrong below, by the fields that were asked for here."""
    try:
        yield
    except ValidationError as error:
        told: dict[str, list[str]] = {}
        for path, words in error.message_dict.items():
            name = path.rpartition(".")[2]
            told.setdefault(_FIELDS.get(name, name), []).extend(words)
        raise ValidationError({**told}) from error
