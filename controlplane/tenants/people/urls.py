"""Addresses of members, invitations and projects under /api/organizations/<id>/."""

from django.urls import path

from controlplane.tenants import projects_api
from controlplane.tenants.people import api

urlpatterns = [
    path("members", api.Members.as_view()),
    path("members/<user:user_id>", api.OneMember.as_view()),
    path("members/<user:user_id>/password-link", api.PasswordLink.as_view()),
    path("security", api.Security.as_view()),
    path("invitations", api.Invitations.as_view()),
    path("invitations/<invite:invitation_id>", api.OneInvitation.as_view()),
    path("projects", projects_api.Projects.as_view()),
    path("projects/<proj:project_id>", projects_api.OneProject.as_view()),
    path("projects/<proj:project_id>/weight", projects_api.Weight.as_view()),
]
