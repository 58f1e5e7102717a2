"""Addresses of the group's pages."""

from django.urls import path

from frontend.people import (
    account_views,
    audit_views,
    member_views,
    organization_views,
    project_views,
    provider_views,
    sign_in_views,
)

urlpatterns = [
    path("members", member_views.member_index, name="members"),
    path("members/second-factor", member_views.second_factor, name="members_second_factor"),
    path("members/invite", member_views.invite, name="invite"),
    path("members/<user:user_id>/role", member_views.member_role, name="member_role"),
    path("members/<user:user_id>/link", member_views.member_link, name="member_link"),
    path("members/<user:user_id>/remove", member_views.member_remove, name="member_remove"),
    path("invitations/<invite:invitation_id>", member_views.invitation_end, name="invitation_end"),
    path("invitation/<str:token>", member_views.invitation, name="invitation"),
    path("projects", project_views.project_index, name="projects"),
    path("projects/add", project_views.project_add, name="project_add"),
    path("projects/<proj:project_id>", project_views.project_save, name="project_save"),
    path("projects/<proj:project_id>/keeping", project_views.project_keep, name="project_keep"),
    path("shares", project_views.share_index, name="shares"),
    path(
        "shares/<org:organization_id>/<proj:project_id>",
        project_views.share_save,
        name="share_save",
    ),
    path("audit", audit_views.audit_index, name="audit"),
    path("audit.csv", audit_views.audit_csv, name="audit_csv"),
    path("audit/installation", audit_views.audit_installation, name="audit_installation"),
    path(
        "audit/installation.csv", audit_views.audit_installation_csv, name="audit_installation_csv"
    ),
    path("organizations", organization_views.organization_index, name="organizations"),
    path("organizations/new", organization_views.organization_new, name="organization_new"),
    path(
        "organizations/<org:organization_id>/links/<user:user_id>",
        organization_views.organization_link,
        name="organization_link",
    ),
    path("organization", sign_in_views.organization_choose, name="organization_choose"),
    path("sign-in", sign_in_views.sign_in, name="sign_in"),
    path("sign-in/forgot", sign_in_views.forgot, name="forgot"),
    path("sign-in/second", sign_in_views.second_factor, name="second_factor"),
    path("sign-in/passkey", account_views.passkey_ask, name="passkey_ask"),
    path("sign-in/provider", provider_views.provider_begin, name="provider_begin"),
    path("sign-in/provider/done", provider_views.provider_done, name="provider_done"),
    path("sign-out", sign_in_views.sign_out, name="sign_out"),
    path("confirm", account_views.confirm, name="confirm"),
    path("confirm/form", account_views.confirmed, name="confirmed"),
    path("account", account_views.account, name="account"),
    path("account/password", account_views.password, name="password"),
    path("account/sessions/others", account_views.sessions_close, name="sessions_close"),
    path(
        "account/sessions/<session:session_id>", account_views.session_close, name="session_close"
    ),
    path("account/app", account_views.app_setup, name="app_setup"),
    path("account/passkeys/new", account_views.passkey_new, name="passkey_new"),
    path("account/passkeys", account_views.passkey_save, name="passkey_save"),
    path("account/codes", account_views.codes_new, name="codes_new"),
    path("account/factors/<factor:factor_id>", account_views.factor_delete, name="factor_delete"),
    path("setup/<str:token>", sign_in_views.setup, name="setup"),
]
