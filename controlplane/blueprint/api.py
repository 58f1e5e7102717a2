"""Configuration as code under /api/blueprint, for who runs the installation."""

from typing import Any, TypedDict

import msgspec
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request

from controlplane.blueprint import configuration
from controlplane.core.api.schema import operation
from controlplane.core.api.views import ApiView
from controlplane.core.permissions import Action
from controlplane.tenants.access import require

_NAMES = OpenApiParameter(
    "organization", str, many=True, description="Names to include; default: all."
)


class DocumentBody(msgspec.Struct, forbid_unknown_fields=True):
    """A document as YAML text."""

    text: str


class ApplyBody(msgspec.Struct, forbid_unknown_fields=True):
    """A document, and whether it is only tried."""

    text: str
    dry_run: bool = True


class ValidJson(TypedDict):
    """That a document can be applied."""

    valid: bool


class ChangesJson(TypedDict):
    """Each value that differs: `path`, `before` and `after`."""

    changes: list[dict[str, Any]]


class AppliedJson(ChangesJson):
    """What was changed, or would be in a dry run."""

    applied: bool


class ConfigurationView(ApiView, under="api/blueprint"):
    """What these operations share: who may not do any of them is told that first."""

    def initial(self, request: Request, *args: object, **kwargs: object) -> None:
        super().initial(request, *args, **kwargs)
        require(self.actor(), Action.CONFIG_MANAGE)


class ExportConfiguration(ConfigurationView, at=""):
    @operation(answer=DocumentBody, params=(_NAMES,))
    def get(self) -> DocumentBody:
        """Export as YAML; repeat `organization` to include only some."""
        names = self.request.query_params.getlist("organization") or None
        return DocumentBody(configuration.configuration_export(actor=self.actor(), names=names))


class ValidateConfiguration(ConfigurationView, at="/validate"):
    @operation(body=DocumentBody, answer=ValidJson)
    def post(self, asked: DocumentBody) -> ValidJson:
        """Validate a document; 400 has the path and line of each error."""
        configuration.configuration_validate(actor=self.actor(), text=asked.text)
        return {"valid": True}


class Diff(ConfigurationView, at="/diff"):
    @operation(body=DocumentBody, answer=ChangesJson)
    def post(self, asked: DocumentBody) -> ChangesJson:
        """Compare a document with the current configuration; changes nothing."""
        changes = configuration.configuration_apply(actor=self.actor(), text=asked.text)
        return {"changes": changes_json(changes)}


class Apply(ConfigurationView, at="/apply"):
    @operation(body=ApplyBody, answer=AppliedJson, step_up=True)
    def post(self, wanted: ApplyBody) -> AppliedJson:
        """Apply a document; a dry run unless `dry_run` is false."""
        changes = configuration.configuration_apply(
            actor=self.actor(), text=wanted.text, dry_run=wanted.dry_run
        )
        return {"applied": not wanted.dry_run, "changes": changes_json(changes)}


def changes_json(changes: list[configuration.ValueChange]) -> list[dict[str, Any]]:
    return [change._asdict() for change in changes]
