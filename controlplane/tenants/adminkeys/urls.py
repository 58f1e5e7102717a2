"""Addresses of admin keys under /api/organizations/<id>/."""

from django.urls import path

from controlplane.tenants.adminkeys import api

urlpatterns = [
    path("admin-keys", api.AdminKeys.as_view()),
    path("admin-keys/<adminkey:key_id>", api.OneAdminKey.as_view()),
]
