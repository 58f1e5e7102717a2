"""What the connector is told: all connections with their keys opened, as one line of JSON."""

from collections import defaultdict
from typing import Any

import msgspec
import structlog
from django.conf import settings

from controlplane.connections.keys import key_opened
from controlplane.connections.models import Connection, ConnectionKey, ConnectionModel, ProviderKind
from controlplane.core.seal import BrokenSeal

log = structlog.get_logger(__name__)


class FeedKey(msgspec.Struct, frozen=True):
    """A key and its id, by which the connector may tell of it."""

    id: str
    secret: str


class FeedModel(msgspec.Struct, frozen=True):
    """A model by its names here and at the provider; sizes in tokens."""

    name: str
    upstream: str
    context_window: int
    max_output: int
    vision: bool


class FeedConnection(msgspec.Struct, frozen=True):
    """One connection, whole."""

    name: str
    kind: str
    url: str
    api_version: str
    region: str
    keys: list[FeedKey]
    models: list[FeedModel]


class Feed(msgspec.Struct, frozen=True):
    """The connector's whole configuration."""

    connections: list[FeedConnection]
    silence_s: tuple[int, ...] = (60, 300)


def connections_served() -> bool:
    """Whether any connection is enabled and has a model, so that a connector is needed."""
    rows = ConnectionModel.objects.filter(withdrawn_at=None, model__enabled=True)
    return rows.filter(connection__enabled=True).exists()


def feed_read() -> Feed:
    """Enabled connections that have models, and keys where their provider wants one; a server that
    wants none has an empty one.
    """
    models: dict[Any, list[FeedModel]] = defaultdict(list)
    offers = ConnectionModel.objects.filter(withdrawn_at=None, model__enabled=True)
    for row in offers.select_related("model").order_by("model__name"):
        models[row.connection_id].append(
            FeedModel(
                row.model.name,
                row.upstream,
                row.model.context_window,
                row.model.output_tokens_max,
                row.model.images_max > 0,
            )
        )
    keys: dict[Any, list[FeedKey]] = defaultdict(list)
    places: dict[Any, Connection] = {}
    # With the address in one statement: a key never meets one that it was not given for.
    active = ConnectionKey.objects.filter(retired_at=None).select_related("connection")
    for key in active.order_by("-id"):
        places[key.connection_id] = key.connection
        try:
            keys[key.connection_id].append(FeedKey(str(key.id), key_opened(key)))
        except BrokenSeal:
            log.error("connection_key_sealed_otherwise", key=str(key.id))
    found = []
    for one in Connection.objects.filter(enabled=True, removed_at=None).order_by("name"):
        if not keys[one.id] and one.kind == ProviderKind.OTHER:
            keys[one.id].append(FeedKey(str(one.id), ""))
        at = places.get(one.id, one)
        if models[one.id] and keys[one.id]:
            place = at.name, at.kind, at.url, at.api_version, at.region
            found.append(FeedConnection(*place, keys[one.id], models[one.id]))
    return Feed(found, settings.PROVIDER_SILENCE_S)


def feed_line(feed: Feed) -> bytes:
    return msgspec.json.encode(feed) + b"\n"
