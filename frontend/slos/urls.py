"""Addresses of the group's pages."""

from django.urls import path

from frontend.slos import views

urlpatterns = [
    path("slos", views.slo_index, name="slos"),
    path("slos.csv", views.slo_csv, name="slo_csv"),
    path("slos/openslo", views.slo_openslo, name="slo_openslo"),
    path("slos/new", views.slo_save, name="slo_save"),
    path("slos/channels", views.slo_channel_add, name="slo_channel_add"),
    path("slos/channels/<channel:channel_id>", views.slo_channel_remove, name="slo_channel_remove"),
    path("slos/<objective:objective_id>", views.slo_detail, name="slo"),
    path("slos/<objective:objective_id>.csv", views.slo_burn_csv, name="slo_burn_csv"),
    path("slos/<objective:objective_id>/change", views.slo_change, name="slo_change"),
]
