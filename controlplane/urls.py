"""URLs that Django serves; `/v1/*` and `/fleet` never reach it (see `asgi.py`)."""

from django.urls import include, path

from controlplane.fleet.metrics import metrics

urlpatterns = [
    path("api/fleet/", include("controlplane.fleet.urls")),
    path("metrics", metrics),
    path("", include("frontend.urls")),
]
