"""Addresses under /v1/organization/."""

from django.urls import path

from controlplane.composed.openai_admin import api

urlpatterns = [
    path("usage/completions", api.Completions.as_view()),
    path("usage/embeddings", api.Embeddings.as_view()),
    path("costs", api.Costs.as_view()),
    path("projects", api.OpenAIProjects.as_view()),
    path("projects/<proj:project_id>", api.OpenAIProject.as_view()),
    path("projects/<proj:project_id>/api_keys", api.ProjectKeys.as_view()),
    path("audit_logs", api.AuditLogs.as_view()),
]
