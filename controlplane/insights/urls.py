"""Addresses under /api/insights/."""

from django.urls import path

from controlplane.insights import api

urlpatterns = [
    path("organizations/<uuid:organization_id>/hygiene", api.HygieneView.as_view()),
]
