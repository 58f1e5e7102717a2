"""Addresses under /api/ of organizations, of their keys and of limits."""

from django.urls import include, path

from controlplane.composed.organizations import api

urlpatterns = [
    path("organizations", api.Organizations.as_view()),
    path("organizations/<org:organization_id>/", include("controlplane.composed.keys.urls")),
]
