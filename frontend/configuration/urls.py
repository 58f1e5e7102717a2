"""Addresses of the group's pages."""

from django.urls import path

from frontend.configuration import views

urlpatterns = [
    path("configuration", views.configuration, name="configuration"),
    path("configuration/file", views.configuration_file, name="configuration_file"),
    path("configuration/compare", views.configuration_compare, name="configuration_compare"),
    path("configuration/apply", views.configuration_change, name="configuration_change"),
]
