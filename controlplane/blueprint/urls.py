"""Addresses under /api/."""

from django.urls import path

from controlplane.blueprint import api, organizations_api

urlpatterns = [
    path("organizations", organizations_api.Organizations.as_view()),
    path("blueprint", api.Export.as_view()),
    path("blueprint/validate", api.Validate.as_view()),
    path("blueprint/diff", api.Diff.as_view()),
    path("blueprint/apply", api.Apply.as_view()),
]
