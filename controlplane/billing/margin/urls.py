"""Addresses of margin under /api/billing/."""

from django.urls import path

from controlplane.billing.margin import api

urlpatterns = [path("margin", api.MarginView.as_view())]
