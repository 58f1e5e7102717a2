"""Cheap checks of a JSON schema, so that what cannot be followed is named before a node sees it."""

from collections.abc import Iterator, Mapping
from typing import Any

from controlplane.gateway.refusal import bad_field

DEPTH_MAX = 24
# Keywords that would change what validates, and that no engine here can follow while it writes.
UNSUPPORTED = frozenset({
    "$dynamicAnchor", "$dynamicRef", "$recursiveAnchor", "$recursiveRef", "contains",
    "dependencies", "dependentRequired", "dependentSchemas", "else", "if", "maxContains",
    "minContains", "not", "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties",
    "uniqueItems", "x-guidance",
})  # fmt: skip
# Where schemas stand inside a schema: as the value, in a list, or under names of one's own.
ONE = frozenset({"additionalItems", "additionalProperties", "items"})
LISTS = frozenset({"allOf", "anyOf", "items", "oneOf", "prefixItems"})
NAMED = frozenset({"$defs", "definitions", "patternProperties", "properties"})


def check_schema(schema: Mapping[str, Any], field: str) -> None:
    """Raises `Refusal` (400) that names the path of what is at fault; `field` is the schema's."""
    _check(schema, field, DEPTH_MAX)


def _check(schema: Any, path: str, depth: int) -> None:
    if isinstance(schema, bool):
        return
    if not isinstance(schema, dict):
        raise bad_field(path, f"'{path}' must be a JSON schema: an object, true or false.")
    if not depth:
        raise bad_field(path, f"'{path}' is nested deeper than {DEPTH_MAX} levels of its schema.")
    for keyword in schema:
        if keyword in UNSUPPORTED:
            at = f"{path}.{keyword}"
            raise bad_field(at, f"'{at}' is not supported in a schema.", "unsupported_parameter")
    reference = schema.get("$ref", "#")
    if not isinstance(reference, str) or not reference.startswith("#"):
        raise bad_field(
            f"{path}.$ref", f"'{path}.$ref' must be a reference within the schema: '#…'."
        )
    for place, inner in _inner(schema, path):
        _check(inner, place, depth - 1)


def _inner(schema: Mapping[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    for keyword, value in schema.items():
        at = f"{path}.{keyword}"
        if keyword in LISTS and isinstance(value, list):
            yield from ((f"{at}[{place}]", each) for place, each in enumerate(value))
        elif keyword in ONE:
            yield at, value
        elif keyword in NAMED:
            if not isinstance(value, dict):
                raise bad_field(at, f"'{at}' must be an object whose values are schemas.")
            yield from ((f"{at}.{name}", each) for name, each in value.items())
