"""URLs that Django serves; `/v1/*` and `/fleet` never reach it (see `asgi.py`)."""

from django.urls import include, path

urlpatterns = [path("", include("frontend.urls"))]
