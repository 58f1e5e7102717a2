"""Addresses of the group's pages."""

from django.urls import path

from frontend.keys import admin_views, limit_views, views

urlpatterns = [
    path("keys", views.key_index, name="keys"),
    path("keys/create", views.key_create, name="key_create"),
    path("keys/<key:apikey_id>", views.key_detail, name="key"),
    path("keys/<key:apikey_id>/revoke", views.key_revoke, name="key_revoke"),
    path("keys/<key:apikey_id>/rotate", views.key_rotate, name="key_rotate"),
    path("limits", limit_views.limit_index, name="limits"),
    path("limits/set", limit_views.limit_save, name="limit_save"),
    path("admin-keys", admin_views.admin_key_index, name="admin_keys"),
    path("admin-keys/create", admin_views.admin_key_create, name="admin_key_create"),
    path(
        "admin-keys/<adminkey:key_id>/revoke", admin_views.admin_key_revoke, name="admin_key_revoke"
    ),
]
