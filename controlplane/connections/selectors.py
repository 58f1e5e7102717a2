"""Reads of connections, for staff."""

import uuid
from dataclasses import dataclass
from datetime import datetime

from controlplane.catalog.models import Model, PriceVersion, PurchasePrice
from controlplane.catalog.selectors import prices_in_force
from controlplane.catalog.services import purchase_now
from controlplane.connections.keys import keys_active
from controlplane.connections.models import Connection, ConnectionKey, ConnectionModel
from controlplane.connections.offers import offers_of
from controlplane.core.audit.entries import Actor
from controlplane.core.permissions import Action
from controlplane.tenants.access import require


@dataclass(frozen=True)
class Served:
    """A model of a connection with what it costs to buy and is sold for now."""

    row: ConnectionModel
    purchase: PurchasePrice | None
    sale: PriceVersion | None


@dataclass(frozen=True)
class ConnectionView:
    """A connection with its active keys, the older first, and its models by name."""

    connection: Connection
    keys: list[ConnectionKey]
    models: list[Served]


def connection_of(model: Model) -> Connection | None:
    """What serves the model of a hosted provider."""
    rows = ConnectionModel.objects.filter(model=model, withdrawn_at=None)
    row = rows.select_related("connection").first()
    return row.connection if row else None


def connection_get(*, actor: Actor, connection_id: uuid.UUID) -> Connection:
    """One that is not removed; raises DoesNotExist."""
    require(actor, Action.CATALOG_MANAGE)
    return Connection.objects.get(id=connection_id, removed_at=None)


def connection_list(*, actor: Actor, now: datetime) -> list[ConnectionView]:
    """By name."""
    require(actor, Action.CATALOG_MANAGE)
    rows = Connection.objects.filter(removed_at=None).order_by("name")
    return [connection_view(row, now) for row in rows]


def connection_view(connection: Connection, now: datetime) -> ConnectionView:
    sales = prices_in_force(at=now)
    served = [
        Served(row, purchase_now(model=row.model), sales.get(row.model_id))
        for row in offers_of(connection)
    ]
    return ConnectionView(connection, list(keys_active(connection)), served)
