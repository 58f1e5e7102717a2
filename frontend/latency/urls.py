"""Addresses of the group's pages."""

from django.urls import path

from frontend.latency import views

urlpatterns = [
    path("latency", views.latency, name="latency"),
    path("latency/<slug:chart>.csv", views.latency_csv, name="latency_csv"),
]
