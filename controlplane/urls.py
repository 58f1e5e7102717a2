"""URLs that Django serves; `/v1/*` and `/fleet` never reach it (see `asgi.py`)."""

from django.urls import include, path

from controlplane.core.api.description import Description
from controlplane.core.converters import converters_register
from frontend.metrics import metrics

converters_register()

handler400 = "controlplane.core.errors.views.bad_request"
handler404 = "controlplane.core.errors.views.not_found"
handler500 = "controlplane.core.errors.views.server_error"

urlpatterns = [
    path("api/schema", Description.as_view(), name="api_schema"),
    path("api/routing/", include("controlplane.routing.urls")),
    path("api/slos/", include("controlplane.slos.urls")),
    path("api/", include("controlplane.blueprint.urls")),
    path("api/", include("controlplane.composed.urls")),
    path("api/catalog/", include("controlplane.catalog.urls")),
    path("api/", include("controlplane.tenants.urls")),
    path("api/", include("controlplane.contents.urls")),
    path("api/fleet/", include("controlplane.fleet.urls")),
    path("v1/organization/", include("controlplane.composed.openai_admin.urls")),
    path("api/billing/", include("controlplane.billing.urls")),
    path("api/insights/", include("controlplane.insights.urls")),
    path("metrics", metrics),
    path("", include("frontend.urls")),
]
