"""Addresses under /api/ of organizations, of their keys and of limits."""

from django.urls import path

from controlplane.composed.keys import api as keys
from controlplane.composed.limits import api as limits
from controlplane.composed.organizations import api as organizations

_MINE = "organizations/<org:organization_id>"
_KEY = f"{_MINE}/keys/<key:inference_key>"

urlpatterns = [
    path("organizations", organizations.Organizations.as_view()),
    path(f"{_MINE}/keys", keys.KeysView.as_view()),
    path(_KEY, keys.OneKey.as_view()),
    path(f"{_KEY}/rotate", keys.KeyRotation.as_view()),
    path(f"{_KEY}/revoke", keys.KeyRevocation.as_view()),
    path(f"{_KEY}/report", keys.KeyTouched.as_view()),
    path(f"{_KEY}/limits", limits.KeyLimits.as_view()),
    path(f"{_KEY}/effective", limits.EffectiveLimits.as_view()),
    path(f"{_MINE}/limits", limits.AllLimits.as_view()),
    path(f"{_MINE}/projects/<proj:project_id>/limits", limits.ProjectLimits.as_view()),
]
