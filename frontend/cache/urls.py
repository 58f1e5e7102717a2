"""Addresses of the group's pages."""

from django.urls import path

from frontend.cache import views

urlpatterns = [
    path("cache", views.cache, name="cache"),
    path("cache/<slug:chart>.csv", views.cache_csv, name="cache_csv"),
]
