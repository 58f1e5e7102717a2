"""The API's description of itself in OpenAPI, and what operations tell it of their bodies."""

from __future__ import annotations

from typing import Any

import msgspec
from drf_spectacular.views import SpectacularJSONAPIView

from controlplane.core.api import ApiView

JSON = "application/json"


class Description(SpectacularJSONAPIView):
    """`GET /api/schema`: public, since it says only what this source says."""

    authentication_classes = ApiView.authentication_classes
    permission_classes = ApiView.permission_classes


def body_schema(shape: type[msgspec.Struct]) -> dict[str, Any]:
    """A body of plain fields, as `extend_schema` takes it."""
    _, components = msgspec.json.schema_components([shape])
    return {JSON: components[shape.__name__]}
