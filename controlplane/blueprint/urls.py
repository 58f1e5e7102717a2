"""Addresses under /api/."""

from django.urls import path

from controlplane.blueprint import api

urlpatterns = [
    path("blueprint", api.ExportConfiguration.as_view()),
    path("blueprint/validate", api.ValidateConfiguration.as_view()),
    path("blueprint/diff", api.Diff.as_view()),
    path("blueprint/apply", api.Apply.as_view()),
]
