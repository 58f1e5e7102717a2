"""Answers of `/v1` held against its published description: all of its fields, and no others."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator

from controlplane.gateway.openai.description import description

REF = "#/components/schemas/"


@cache
def strict() -> dict[str, Any]:
    """The description, where objects with named fields have no others."""
    told: dict[str, Any] = json.loads(description())
    for shape in told["components"]["schemas"].values():
        if "properties" in shape:
            shape["additionalProperties"] = False
    return told


def answer_shape(path: str, method: str = "post") -> str:
    """The name of what an operation answers."""
    operation = strict()["paths"][path][method]
    schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
    return str(schema["$ref"]).removeprefix(REF)


def check_described(body: Any, name: str) -> None:
    """Raises ValidationError where the body is not of the component's shape."""
    Draft202012Validator({**strict(), "$ref": REF + name}).validate(body)
