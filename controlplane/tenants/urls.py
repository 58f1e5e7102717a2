"""Addresses under /api/ of members, invitations, projects, admin keys and the audit."""

from django.urls import path

from controlplane.tenants import projects_api as projects
from controlplane.tenants.adminkeys import api as adminkeys
from controlplane.tenants.audit import api as audit
from controlplane.tenants.people import api as people

_MINE = "organizations/<org:organization_id>"
_MEMBER = f"{_MINE}/members/<user:user_id>"
_PROJECT = f"{_MINE}/projects/<proj:project_id>"

urlpatterns = [
    path(f"{_MINE}/admin-keys", adminkeys.AdminKeys.as_view()),
    path(f"{_MINE}/admin-keys/<adminkey:key_id>", adminkeys.OneAdminKey.as_view()),
    path(f"{_MINE}/members", people.Members.as_view()),
    path(_MEMBER, people.OneMember.as_view()),
    path(f"{_MEMBER}/password-link", people.PasswordLink.as_view()),
    path(f"{_MINE}/security", people.Security.as_view()),
    path(f"{_MINE}/invitations", people.Invitations.as_view()),
    path(f"{_MINE}/invitations/<invite:invitation_id>", people.OneInvitation.as_view()),
    path(f"{_MINE}/projects", projects.Projects.as_view()),
    path(_PROJECT, projects.OneProject.as_view()),
    path(f"{_PROJECT}/weight", projects.Weight.as_view()),
    path("audit", audit.InstallationAudit.as_view()),
    path("audit/head", audit.AuditHead.as_view()),
    path(f"{_MINE}/audit", audit.OrganizationAudit.as_view()),
]
