"""Addresses under /api/routing/; a version is said by its number."""

from django.urls import path

from controlplane.routing import api

urlpatterns = [
    path("versions", api.RuleSets.as_view()),
    path("versions/<int:version>", api.OneRuleSet.as_view()),
    path("versions/<int:version>/validate", api.Validate.as_view()),
    path("versions/<int:version>/dry-run", api.DryRunView.as_view()),
    path("versions/<int:version>/publish", api.Publish.as_view()),
    path("versions/<int:version>/canary", api.CanaryStart.as_view()),
    path("versions/<int:version>/promote", api.CanaryPromote.as_view()),
    path("versions/<int:version>/stop", api.CanaryStop.as_view()),
    path("canary", api.Canary.as_view()),
    path("rollback", api.Rollback.as_view()),
]
