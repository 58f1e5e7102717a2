"""Who calls /api/ with a bearer token, for all installations: the operator. Apps add others."""

import hmac
from typing import Any

from django.conf import settings
from rest_framework import exceptions
from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request

from controlplane.core.audit.entries import OPERATOR, Operator
from controlplane.core.audit.origin import credential_noted
from controlplane.kernel.keys.format import ADMIN_PREFIX, USER_PREFIX

BEARER = "Bearer "


class OperatorAuthentication(BaseAuthentication):
    """`Authorization: Bearer` with the operator token; a wrong one is refused."""

    def authenticate(self, request: Request) -> tuple[Operator, None] | None:
        """The operator, or None where no bearer token was sent, or one that looks like admin's."""
        given = bearer(request)
        if given is None or given.startswith(f"{ADMIN_PREFIX}_"):
            return None
        if given.startswith(f"{USER_PREFIX}_"):
            raise exceptions.AuthenticationFailed(
                "This is an inference key, which works for models only. Send an admin key."
            )
        if not same(given, settings.OPERATOR_TOKEN):
            raise exceptions.AuthenticationFailed("Invalid bearer token.")
        credential_noted(request._request, "operator token")
        return OPERATOR, None

    def authenticate_header(self, request: Request) -> str:
        return "Bearer"


def bearer(request: Any) -> str | None:
    """The bearer token of a request, None without one."""
    text: str = request.META.get("HTTP_AUTHORIZATION", "")
    return text.removeprefix(BEARER).strip() if text.startswith(BEARER) else None


def same(given: str, known: str) -> bool:
    """Whether two secrets are one, in constant time."""
    return hmac.compare_digest(given.encode(), known.encode())
