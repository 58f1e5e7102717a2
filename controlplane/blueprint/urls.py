"""Addresses under /api/blueprint."""

from django.urls import path

from controlplane.blueprint import api

urlpatterns = [
    path("", api.Export.as_view()),
    path("/validate", api.Validate.as_view()),
    path("/diff", api.Diff.as_view()),
    path("/apply", api.Apply.as_view()),
]
