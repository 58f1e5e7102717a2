"""URLs that Django serves; `/v1/*` and `/fleet` never reach it (see `asgi.py`)."""

from django.urls import include, path, register_converter

from controlplane.core.api_description import Description
from controlplane.core.converters import HexId
from frontend.views.metrics import metrics

register_converter(HexId, "hexid")

handler400 = "controlplane.core.error_views.bad_request"
handler404 = "controlplane.core.error_views.not_found"
handler500 = "controlplane.core.error_views.server_error"

urlpatterns = [
    path("api/schema", Description.as_view(), name="api_schema"),
    path("api/routing/", include("controlplane.routing.urls")),
    path("api/slos/", include("controlplane.slos.urls")),
    path("api/", include("controlplane.blueprint.urls")),
    path("api/catalog/", include("controlplane.catalog.urls")),
    path(
        "api/organizations/<hexid:organization_id>/",
        include("controlplane.tenants.adminkeys_urls"),
    ),
    path("api/organizations/<hexid:organization_id>/", include("controlplane.tenants.people_urls")),
    path("api/organizations/<hexid:organization_id>/", include("controlplane.blueprint.keys_urls")),
    path("api/", include("controlplane.tenants.audit_urls")),
    path("api/fleet/", include("controlplane.fleet.urls")),
    path("v1/organization/", include("controlplane.billing.openai_urls")),
    path("api/billing/", include("controlplane.billing.ledger_urls")),
    path("api/billing/", include("controlplane.billing.invoice_urls")),
    path("api/billing/", include("controlplane.billing.exports.urls")),
    path("api/billing/", include("controlplane.billing.margin_urls")),
    path("api/insights/", include("controlplane.insights.urls")),
    path("metrics", metrics),
    path("", include("frontend.urls")),
]
