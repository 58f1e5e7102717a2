"""`Authorization: Bearer` with an organization's admin key, for everything under /api/."""

from rest_framework import exceptions
from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request

from controlplane.core.api.callers import bearer
from controlplane.core.audit.origin import credential_noted
from controlplane.tenants.adminkeys.services import adminkey_open
from controlplane.tenants.models import AdminKey


class AdminKeyAuthentication(BaseAuthentication):
    """The key as the caller; the operator's token and inference keys are told before."""

    def authenticate(self, request: Request) -> tuple[AdminKey, None] | None:
        """The key, or None where no bearer token was sent."""
        given = bearer(request)
        if given is None:
            return None
        key = adminkey_open(text=given)
        if key is None:
            raise exceptions.AuthenticationFailed("The admin key is unknown, expired or revoked.")
        credential_noted(request._request, key.redacted)
        return key, None

    def authenticate_header(self, request: Request) -> str:
        return "Bearer"
