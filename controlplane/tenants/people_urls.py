"""Addresses of members, invitations and projects under /api/organizations/<id>/."""

from django.urls import path

from controlplane.tenants import people_api as api

urlpatterns = [
    path("members", api.Members.as_view()),
    path("members/<uuid:user_id>", api.OneMember.as_view()),
    path("security", api.Security.as_view()),
    path("invitations", api.Invitations.as_view()),
    path("invitations/<uuid:invitation_id>", api.OneInvitation.as_view()),
    path("projects", api.Projects.as_view()),
    path("projects/<uuid:project_id>", api.OneProject.as_view()),
    path("projects/<uuid:project_id>/weight", api.Weight.as_view()),
]
