"""Addresses of the pages. A page's address is its view: range, filters and open item are in it."""

from django.urls import path, register_converter

from frontend.converters import HexId
from frontend.views import (
    account,
    fleet,
    keys,
    overview,
    playground,
    requests,
    routing,
    routing_changes,
)

register_converter(HexId, "hexid")

urlpatterns = [
    path("", overview.overview, name="overview"),
    path("overview/<slug:chart>.csv", overview.chart_csv, name="chart_csv"),
    path("requests", requests.request_index, name="requests"),
    path("requests/<hexid:request_id>", requests.request_detail, name="request"),
    path("keys", keys.key_index, name="keys"),
    path("keys/create", keys.key_create, name="key_create"),
    path("keys/<hexid:apikey_id>/revoke", keys.key_revoke, name="key_revoke"),
    path("playground", playground.playground, name="playground"),
    path("playground/token", playground.token, name="playground_token"),
    path("playground/cost/<hexid:request_id>", playground.cost, name="playground_cost"),
    path("fleet", fleet.fleet_index, name="fleet"),
    path("fleet/tokens", fleet.token_make, name="fleet_token"),
    path("fleet/tokens/<hexid:token_id>/revoke", fleet.token_end, name="fleet_token_end"),
    path("fleet/pools", fleet.pool_save, name="fleet_pool"),
    path("fleet/nodes/<hexid:node_id>/models", fleet.node_models, name="fleet_models"),
    path("fleet/nodes/<hexid:node_id>/<slug:action>", fleet.node_act, name="fleet_node"),
    path("fleet/digests/<hexid:digest_id>/<slug:decision>", fleet.digest_act, name="fleet_digest"),
    path("routing", routing.routing, name="routing"),
    path("routing/draft", routing_changes.routing_draft, name="routing_draft"),
    path("routing/rollback", routing_changes.routing_rollback, name="routing_rollback"),
    path("routing/<int:version>", routing.routing_version, name="routing_version"),
    path("routing/<int:version>/dry-run", routing.routing_dry_run, name="routing_dry_run"),
    path("routing/<int:version>/save", routing_changes.routing_save, name="routing_save"),
    path("routing/<int:version>/publish", routing_changes.routing_publish, name="routing_publish"),
    path("routing/<int:version>/canary", routing_changes.routing_canary, name="routing_canary"),
    path("routing/<int:version>/promote", routing_changes.routing_promote, name="routing_promote"),
    path("routing/<int:version>/stop", routing_changes.routing_stop, name="routing_stop"),
    path("routing/<int:version>/discard", routing_changes.routing_discard, name="routing_discard"),
    path("organization", account.organization_choose, name="organization_choose"),
    path("sign-in", account.sign_in, name="sign_in"),
    path("sign-out", account.sign_out, name="sign_out"),
    path("setup/<str:token>", account.setup, name="setup"),
]
