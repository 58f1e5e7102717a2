"""Addresses of the group's pages."""

from django.urls import path

from frontend.insights import capacity_views, stage_map_views, views

urlpatterns = [
    path("insights", views.insight_index, name="insights"),
    path("insights.csv", views.insight_csv, name="insights_csv"),
    path("insights/stages", stage_map_views.stage_map, name="stage_map"),
    path("insights/stages.<slug:form>", stage_map_views.stage_map_file, name="stage_map_file"),
    path("insights/comparison", stage_map_views.comparison, name="comparison"),
    path("insights/capacity", capacity_views.capacity, name="capacity"),
    path("insights/capacity.csv", capacity_views.capacity_csv, name="capacity_csv"),
]
