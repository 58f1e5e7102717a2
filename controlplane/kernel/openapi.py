"""Types of msgspec's as components of an OpenAPI document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

REF = "#/components/schemas/{name}"


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
