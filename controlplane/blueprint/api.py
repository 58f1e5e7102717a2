"""Configuration as code under /api/blueprint, for who runs the installation."""

from __future__ import annotations

import msgspec
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.blueprint.configuration import (
    Change,
    configuration_apply,
    configuration_export,
    configuration_validate,
)
from controlplane.core.api import ApiView
from controlplane.core.api_schema import body_schema
from controlplane.core.permissions import Action
from controlplane.tenants.access import require

OBJECT = OpenApiTypes.OBJECT


class DocumentBody(msgspec.Struct, forbid_unknown_fields=True):
    """A document as YAML text."""

    text: str


class ApplyBody(msgspec.Struct, forbid_unknown_fields=True):
    """A document, and whether it is only tried."""

    text: str
    dry_run: bool = True


class ConfigurationView(ApiView):
    """What these operations share: who may not do any of them is told that first."""

    def initial(self, request: Request, *args: object, **kwargs: object) -> None:
        """Before a body is read."""
        super().initial(request, *args, **kwargs)
        require(self.actor(), Action.CONFIG_MANAGE)


class Export(ConfigurationView):
    """`GET blueprint?organization=…`: what is configured now."""

    @extend_schema(responses=OBJECT, operation_id="blueprint_export")
    def get(self, request: Request) -> Response:
        """As YAML text; without `organization`, which may be repeated, all of them."""
        names = request.query_params.getlist("organization") or None
        return Response({"text": configuration_export(actor=self.actor(), names=names)})


class Validate(ConfigurationView):
    """`POST blueprint/validate`: whether a document can be applied."""

    @extend_schema(request=body_schema(DocumentBody), responses=OBJECT)
    def post(self, request: Request) -> Response:
        """400 names the path and line of what is wrong."""
        configuration_validate(actor=self.actor(), text=self.body(DocumentBody).text)
        return Response({"valid": True})


class Diff(ConfigurationView):
    """`POST blueprint/diff`: what applying a document would change."""

    @extend_schema(request=body_schema(DocumentBody), responses=OBJECT)
    def post(self, request: Request) -> Response:
        """Each value with what it is now; nothing is done."""
        changes = configuration_apply(actor=self.actor(), text=self.body(DocumentBody).text)
        return Response({"changes": changes_json(changes)})


class Apply(ConfigurationView):
    """`POST blueprint/apply`: a document made true, all or nothing."""

    step_up_methods = frozenset({"POST"})

    @extend_schema(request=body_schema(ApplyBody), responses=OBJECT)
    def post(self, request: Request) -> Response:
        """A dry run unless `dry_run` is false."""
        wanted = self.body(ApplyBody)
        changes = configuration_apply(actor=self.actor(), text=wanted.text, dry_run=wanted.dry_run)
        return Response({"applied": not wanted.dry_run, "changes": changes_json(changes)})


def changes_json(changes: list[Change]) -> list[dict[str, object]]:
    """Each value that differs."""
    return [change._asdict() for change in changes]
