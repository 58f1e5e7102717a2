"""Addresses of the group's pages."""

from django.urls import path

from frontend.stages import views

urlpatterns = [
    path("stages", views.stage_index, name="stages"),
    path("stages/<slug:stage>", views.stage_save, name="stage_save"),
    path("runbooks", views.runbook_index, name="runbooks"),
    path("runbooks/<slug:slug>", views.runbook, name="runbook"),
]
