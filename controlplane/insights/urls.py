"""Addresses under /api/insights/."""

from django.urls import path

from controlplane.insights import api

urlpatterns = [
    path("organizations/<org:organization_id>/hygiene", api.HygieneView.as_view()),
    path("organizations/<org:organization_id>/stage-map", api.StageMapView.as_view()),
    path("organizations/<org:organization_id>/comparisons", api.ComparisonsView.as_view()),
    path("capacity", api.CapacityView.as_view()),
]
