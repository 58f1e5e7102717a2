"""Addresses of the group's pages."""

from django.urls import path

from frontend.fleet import views

urlpatterns = [
    path("fleet", views.fleet_index, name="fleet"),
    path("fleet/<slug:chart>.csv", views.fleet_csv, name="fleet_csv"),
    path("fleet/tokens", views.token_make, name="fleet_token"),
    path("fleet/tokens/<token:token_id>/revoke", views.token_end, name="fleet_token_end"),
    path("fleet/pools", views.pool_save, name="fleet_pool"),
    path("fleet/nodes/<node:node_id>/models", views.node_models, name="fleet_models"),
    path("fleet/nodes/<node:node_id>/<slug:action>", views.node_act, name="fleet_node"),
    path("fleet/digests/<digest:digest_id>/<slug:decision>", views.digest_act, name="fleet_digest"),
]
