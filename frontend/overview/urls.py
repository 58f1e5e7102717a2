"""Addresses of the group's pages."""

from django.urls import path

from frontend.overview import views

urlpatterns = [
    path("", views.overview, name="overview"),
    path("overview/<slug:chart>.csv", views.overview_csv, name="overview_csv"),
]
