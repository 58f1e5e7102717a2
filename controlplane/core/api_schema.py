"""The API's description of itself in OpenAPI, and what operations tell it of their bodies."""

from __future__ import annotations

from typing import Any

import msgspec
from drf_spectacular.views import SpectacularJSONAPIView
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.views import APIView

from controlplane.core.audit import Operator

JSON = "application/json"


class Known(BasePermission):
    """The operator, and whoever is signed in: writing a description takes a while."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        """Whether the caller is somebody."""
        return isinstance(request.user, Operator) or bool(request.user.is_authenticated)


class Description(SpectacularJSONAPIView):
    """`GET /api/schema`."""

    permission_classes = (Known,)


def body_schema(shape: type[msgspec.Struct]) -> dict[str, Any]:
    """A body of plain fields, as `extend_schema` takes it."""
    _, components = msgspec.json.schema_components([shape])
    return {JSON: components[shape.__name__]}
