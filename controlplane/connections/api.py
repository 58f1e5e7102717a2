"""Connections under /api/connections, for staff; a key is taken and never answered."""

import uuid
from datetime import UTC, date, datetime
from typing import Any, TypedDict

import msgspec
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.billing.margin.api import MONTH, month_bounds
from controlplane.billing.months.periods import Period, period_of
from controlplane.connections import services
from controlplane.connections.keys import key_add, key_retire
from controlplane.connections.models import Connection, ConnectionKey
from controlplane.connections.offers import RATES, OfferDraft, connection_remove, offers_set
from controlplane.connections.probe import Probe, connection_test
from controlplane.connections.selectors import (
    ConnectionView,
    Served,
    connection_get,
    connection_list,
    connection_view,
)
from controlplane.connections.spend import AmountDraft, amounts_set, spend_read
from controlplane.core.answers import answer_of
from controlplane.core.api.schema import CREATED, Whole, operation
from controlplane.core.api.views import ApiView
from controlplane.core.permissions import Action
from controlplane.kernel.ids import ConnectionId, ConnectionKeyId
from controlplane.tenants.access import require

EXAMPLE = {"name": "openai-eu", "kind": "openai", "url": "https://api.openai.com/v1"}
RATES_EXAMPLE = {"input_pico": 2_500_000, "cached_pico": 1_250_000, "output_pico": 10_000_000}
AMOUNTS_EXAMPLE = {"amounts": [{"day": "2026-11-28", "upstream": "gpt-4o", "usd": "12.34"}]}
MODELS_EXAMPLE = {
    "models": [
        {
            "upstream": "gpt-4o",
            "model": "gpt-4o",
            "context_window": 128_000,
            "output_max": 16_384,
            "vision": True,
            "purchase": RATES_EXAMPLE,
            "sale": RATES_EXAMPLE,
        }
    ]
}


class ConnectionKeyBody(msgspec.Struct, forbid_unknown_fields=True):
    """A key of the provider, 8 to 500 printable characters."""

    secret: str


class EnabledBody(msgspec.Struct, forbid_unknown_fields=True):
    """Whether its models may be served."""

    enabled: bool


class OffersBody(msgspec.Struct, forbid_unknown_fields=True):
    """All models that it is to serve."""

    models: list[OfferDraft]


class ConnectionKeyJson(TypedDict):
    """A key by its last four characters."""

    id: ConnectionKeyId
    object: str
    shown: str
    created_at: datetime


class OfferedJson(TypedDict):
    """A model by its name here and the provider's; rates in pico-USD per token, null without."""

    model: str
    upstream: str
    enabled: bool
    context_window: int
    output_max: int
    vision: bool
    purchase: dict[str, int] | None
    sale: dict[str, int] | None


class ConnectionJson(TypedDict):
    """A connection; `outcome` and `tested_at` are of its last test."""

    id: ConnectionId
    object: str
    name: str
    kind: str
    url: str
    api_version: str
    region: str
    enabled: bool
    outcome: str
    tested_at: datetime | None
    created_at: datetime
    keys: list[ConnectionKeyJson]
    models: list[OfferedJson]


class ConnectionsView(ApiView, under="api/connections"):
    """Rights come before bodies."""

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        require(self.actor(), Action.CATALOG_MANAGE)

    def connection(self) -> Connection:
        named = self.kwargs["connection_id"]
        return connection_get(actor=self.actor(), connection_id=named)

    def whole(self) -> ConnectionJson:
        """The connection as it is now."""
        return connection_json(connection_view(self.connection(), timezone.now()))


class Connections(ConnectionsView, at=""):
    @operation(list_of=Whole(ConnectionJson))
    def get(self) -> Response:
        """List connections by name, with their keys and models."""
        found = connection_list(actor=self.actor(), now=timezone.now())
        return self.listed(found, connection_json)

    @operation(
        body=services.ConnectionDraft,
        answer={CREATED: ConnectionJson},
        example=EXAMPLE,
        step_up=True,
    )
    def post(self, wanted: services.ConnectionDraft) -> ConnectionJson:
        """Create a connection without keys and models."""
        made = services.connection_create(actor=self.actor(), draft=wanted)
        return connection_json(connection_view(made, timezone.now()))


class OneConnection(ConnectionsView, at="/<connection:connection_id>"):
    @operation(answer=ConnectionJson)
    def get(self) -> ConnectionJson:
        """Get a connection with its keys and models."""
        return self.whole()

    @operation(body=services.ConnectionDraft, answer=ConnectionJson, example=EXAMPLE, step_up=True)
    def put(self, wanted: services.ConnectionDraft) -> ConnectionJson:
        """Change a connection; its keys and models stay."""
        services.connection_change(actor=self.actor(), connection=self.connection(), draft=wanted)
        return self.whole()

    @operation(step_up=True)
    def delete(self) -> Response:
        """Remove a connection: its keys are forgotten and its models switched off."""
        connection_remove(actor=self.actor(), connection=self.connection())
        return Response(status=204)


class ConnectionEnabled(ConnectionsView, at="/<connection:connection_id>/enabled"):
    @operation(body=EnabledBody, answer=ConnectionJson, example={"enabled": False}, step_up=True)
    def put(self, wanted: EnabledBody) -> ConnectionJson:
        """Enable or disable a connection."""
        services.connection_enable(
            actor=self.actor(), connection=self.connection(), enabled=wanted.enabled
        )
        return self.whole()


class ConnectionKeys(ConnectionsView, at="/<connection:connection_id>/keys"):
    @operation(
        body=ConnectionKeyBody,
        answer={CREATED: ConnectionKeyJson},
        example={"secret": "sk-..."},
        step_up=True,
    )
    def post(self, wanted: ConnectionKeyBody) -> ConnectionKeyJson:
        """Add a key; two may be active."""
        connection = self.connection()
        return key_json(key_add(actor=self.actor(), connection=connection, secret=wanted.secret))


class OneConnectionKey(
    ConnectionsView, at="/<connection:connection_id>/keys/<connectionkey:key_id>"
):
    @operation(step_up=True)
    def delete(self, key_id: uuid.UUID) -> Response:
        """Retire a key, which is forgotten."""
        key_retire(actor=self.actor(), connection=self.connection(), key_id=key_id)
        return Response(status=204)


class ConnectionTest(ConnectionsView, at="/<connection:connection_id>/test"):
    @operation(answer=Probe)
    def post(self) -> Probe:
        """Ask the provider for its list of models, once, with the newest key."""
        return connection_test(actor=self.actor(), connection=self.connection())


class SpendLineJson(TypedDict):
    """A model on a UTC day; amounts in nano-USD, `theirs_nano` null where none was entered."""

    day: date
    upstream: str
    tokens: int
    ours_nano: int
    theirs_nano: int | None
    difference_nano: int | None


class ConnectionSpendView(ConnectionsView, at="/<connection:connection_id>/spend"):
    @operation(list_of=Whole(SpendLineJson), params=[MONTH])
    def get(self) -> Response:
        """Compare a month's purchase cost to what the provider charges, by day and model."""
        now = datetime.now(UTC)
        named = self.request.query_params.get("month")
        start, end = month_bounds(Period(named) if named else period_of(now), now)
        found = spend_read(actor=self.actor(), connection=self.connection(), start=start, end=end)
        return self.listed(found.lines, lambda line: answer_of(SpendLineJson, line), "day")


class AmountsBody(msgspec.Struct, forbid_unknown_fields=True):
    """What the provider charges."""

    amounts: list[AmountDraft]


class ConnectionAmounts(ConnectionsView, at="/<connection:connection_id>/amounts"):
    @operation(body=AmountsBody, example=AMOUNTS_EXAMPLE, step_up=True)
    def put(self, wanted: AmountsBody) -> Response:
        """Enter what the provider charges by day and model; replaces what was entered of them."""
        amounts_set(actor=self.actor(), connection=self.connection(), drafts=wanted.amounts)
        return Response(status=204)


class ConnectionModels(ConnectionsView, at="/<connection:connection_id>/models"):
    @operation(body=OffersBody, answer=ConnectionJson, example=MODELS_EXAMPLE, step_up=True)
    def put(self, wanted: OffersBody) -> ConnectionJson:
        """Replace the models that a connection serves, with their prices."""
        offers_set(actor=self.actor(), connection=self.connection(), drafts=wanted.models)
        return self.whole()


def connection_json(view: ConnectionView) -> ConnectionJson:
    return answer_of(
        ConnectionJson,
        view.connection,
        object="connection",
        keys=[key_json(key) for key in view.keys],
        models=[offered_json(served) for served in view.models],
    )


def key_json(key: ConnectionKey) -> ConnectionKeyJson:
    return answer_of(ConnectionKeyJson, key, object="connection_key")


def offered_json(served: Served) -> OfferedJson:
    model = served.row.model
    return OfferedJson(
        model=model.name,
        upstream=served.row.upstream,
        enabled=model.enabled,
        context_window=model.context_window,
        output_max=model.output_tokens_max,
        vision=model.images_max > 0,
        purchase=_rates(served.purchase),
        sale=_rates(served.sale),
    )


def _rates(row: object) -> dict[str, int] | None:
    return {name: getattr(row, name) for name in RATES} if row else None
