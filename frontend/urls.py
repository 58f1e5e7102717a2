"""Addresses of the pages. A page's address is its view: range, filters and open item are in it."""

from django.urls import path, register_converter

from frontend.converters import HexId
from frontend.views import account, keys, overview, playground, requests

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
    path("organization", account.organization_choose, name="organization_choose"),
    path("sign-in", account.sign_in, name="sign_in"),
    path("sign-out", account.sign_out, name="sign_out"),
    path("setup/<str:token>", account.setup, name="setup"),
]
