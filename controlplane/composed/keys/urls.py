"""Addresses of inference keys and limits under /api/organizations/<id>/."""

from django.urls import path

from controlplane.composed.keys import api
from controlplane.composed.limits import api as limits_api

_KEY = "keys/<key:inference_key>"

urlpatterns = [
    path("keys", api.KeysView.as_view()),
    path(_KEY, api.OneKey.as_view()),
    path(f"{_KEY}/rotate", api.KeyRotation.as_view()),
    path(f"{_KEY}/revoke", api.KeyRevocation.as_view()),
    path(f"{_KEY}/report", api.KeyTouched.as_view()),
    path(f"{_KEY}/limits", limits_api.KeyLimits.as_view()),
    path(f"{_KEY}/effective", limits_api.EffectiveLimits.as_view()),
    path("limits", limits_api.AllLimits.as_view()),
    path("projects/<proj:project_id>/limits", limits_api.ProjectLimits.as_view()),
]
