"""Addresses of the audit under /api/."""

from django.urls import path

from controlplane.tenants.audit import api

urlpatterns = [
    path("audit", api.InstallationAudit.as_view()),
    path("audit/head", api.AuditHead.as_view()),
    path("organizations/<org:organization_id>/audit", api.OrganizationAudit.as_view()),
]
