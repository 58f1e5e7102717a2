"""Where clients reach the gateway, and browsers these pages."""

from django.conf import settings
from django.http import HttpRequest


def gateway_url(request: HttpRequest) -> str:
    """Where clients send `/v1`: the configured address, else the one this page came from."""
    return settings.GATEWAY_URL or page_url(request)


def page_url(request: HttpRequest) -> str:
    return f"{request.scheme}://{request.get_host()}"
