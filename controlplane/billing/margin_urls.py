"""Addresses of margin under /api/billing/."""

from django.urls import path

from controlplane.billing import margin_api as api

urlpatterns = [path("margin", api.MarginView.as_view())]
