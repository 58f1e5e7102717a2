"""Addresses of the group's pages."""

from django.urls import path

from frontend.requests import link_views, views

urlpatterns = [
    path("requests", views.request_index, name="requests"),
    path("requests.csv", link_views.request_csv, name="requests_csv"),
    path("requests/exemplar", link_views.request_exemplar, name="request_exemplar"),
    path("requests/<req:request_id>", views.request_detail, name="request"),
]
