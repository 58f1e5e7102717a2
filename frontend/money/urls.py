"""Addresses of the group's pages."""

from django.urls import path

from frontend.money import (
    budget_views,
    export_views,
    ledger_views,
    margin_views,
    price_views,
    spend_views,
)

urlpatterns = [
    path("budgets", budget_views.budget_index, name="budgets"),
    path("budgets/save", budget_views.budget_save, name="budget_save"),
    path("budgets/stop", budget_views.budget_stop, name="budget_stop"),
    path("prices", price_views.price_index, name="prices"),
    path("prices/publish", price_views.price_make, name="price_make"),
    path("spend", spend_views.spend_index, name="spend"),
    path("spend/<slug:panel>.csv", spend_views.spend_csv, name="spend_csv"),
    path("ledger", ledger_views.ledger, name="ledger"),
    path("ledger/months", ledger_views.ledger_months, name="ledger_months"),
    path("ledger/close", ledger_views.ledger_close, name="ledger_close"),
    path("exports", export_views.export_index, name="exports"),
    path("exports/rows", export_views.export_rows, name="export_rows"),
    path("exports/<export:export_id>/file", export_views.export_file, name="export_file"),
    path(
        "exports/<export:export_id>/manifest", export_views.export_manifest, name="export_manifest"
    ),
    path("margin", margin_views.margin_index, name="margin"),
    path("margin.csv", margin_views.margin_csv, name="margin_csv"),
]
