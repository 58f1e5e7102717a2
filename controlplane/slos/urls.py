"""Addresses under /api/slos/."""

from django.urls import path

from controlplane.slos import api

OF = "organizations/<org:organization_id>"

urlpatterns = [
    path(f"{OF}/objectives", api.Objectives.as_view()),
    path(f"{OF}/objectives/<objective:objective_id>", api.OneObjective.as_view()),
    path(f"{OF}/alerts", api.Alerts.as_view()),
    path(f"{OF}/channels", api.Channels.as_view()),
    path(f"{OF}/channels/<channel:channel_id>", api.OneChannel.as_view()),
    path(f"{OF}/openslo", api.OpenSlo.as_view()),
    path(f"{OF}/stages", api.Stages.as_view()),
    path("stages/<slug:stage>", api.OneStage.as_view()),
]
