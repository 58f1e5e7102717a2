"""Addresses of wallets under /api/billing/."""

from django.urls import path

from controlplane.billing.wallets import api

_MINE = "organizations/<org:organization_id>"

urlpatterns = [
    path(f"{_MINE}/wallet", api.OneWallet.as_view()),
    path(f"{_MINE}/grants", api.Grants.as_view()),
]
