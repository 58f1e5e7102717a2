"""What both APIs share: the body of every error, and how their types are described."""

from collections.abc import Sequence
from typing import Any, NotRequired, TypedDict, cast

import msgspec

INVALID = "invalid_request_error"
DENIED = "permission_error"
AWAY = "service_unavailable_error"
SERVER_ERROR = "server_error"


REF = "#/components/schemas/{name}"


class ErrorFacts(TypedDict):
    """`message` is for people, `code` for programs; `param` names the field at fault.

    `fields` has all fields at fault, each with its messages; the control plane always sends it.
    `degraded` is why the installation cannot serve a model as it should.
    """

    message: str
    type: str
    param: str | None
    code: str | None
    fields: NotRequired[dict[str, list[str]]]
    degraded: NotRequired[dict[str, Any]]


class Error(TypedDict):
    """Why something was not done."""

    error: ErrorFacts


def error_body(
    message: str,
    *,
    kind: str = INVALID,
    param: str | None = None,
    code: str | None = None,
    **more: object,
) -> Error:
    facts = {"message": message, "type": kind, "param": param, "code": code, **more}
    return cast(Error, {"error": facts})


def components_of(
    types: Sequence[Any], prefix: str = ""
) -> tuple[list[dict[str, Any]], dict[str, dict[str, Any]]]:
    """A reference to each type, and the components by name, which begins with `prefix`.

    A default of null is left out: it says nothing, and generators take such a field for required.
    """
    refs, components = msgspec.json.schema_components(
        types, ref_template=REF.format(name=prefix + "{name}")
    )
    for shape in components.values():
        for field in shape.get("properties", {}).values():
            if field.get("default", "") is None:
                del field["default"]
    return list(refs), {prefix + name: shape for name, shape in components.items()}
