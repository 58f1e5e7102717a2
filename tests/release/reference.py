"""The parts of the documentation's site that come from the code: commands, endpoints, fields."""

from __future__ import annotations

import contextlib
import io
import json
import os
from collections.abc import Callable, Iterator
from typing import Any

METHODS = ("get", "post", "put", "patch", "delete")
DEPTH_MAX = 3
# A bound from there on is the type's, and tells nothing.
INT_32 = 2**31 - 1
# What help is folded to.
COLUMNS = "96"


def commands() -> str:
    """The help of every command of the console."""
    from controlplane.__main__ import COMMANDS, PROGRAMS, main

    os.environ["COLUMNS"] = COLUMNS
    parts = []
    for name in (*COMMANDS, *PROGRAMS):
        told = io.StringIO()
        with contextlib.redirect_stdout(told), contextlib.suppress(SystemExit):
            main([*name.split(), "--help"])
        parts.append(f"## {name}\n\n```text\n{told.getvalue().strip()}\n```")
    return "\n\n".join(parts)


def endpoints() -> str:
    """Every operation of `/v1`, each with a table of what its body may hold."""
    from controlplane.gateway.openai.description import description

    document = json.loads(description())
    parts = []
    for path, method, operation in _operations(document):
        parts.append(f"## {method.upper()} {path}\n\n{operation['summary']}")
        body = operation.get("requestBody", {}).get("content", {}).get("application/json")
        if body is not None:
            rows = "\n".join(_rows(body["schema"], document))
            parts.append(f"| field | type | default |\n|---|---|---|\n{rows}")
    return "\n\n".join(parts)


def control_plane() -> str:
    """Every operation of `/api`, by what its address begins with."""
    from drf_spectacular.generators import SchemaGenerator

    generator: Any = SchemaGenerator
    document = generator().get_schema(request=None, public=True)
    parts, subject = [], ""
    for path, method, operation in _operations(document):
        word = path.split("/")[2]
        if word != subject:
            subject = word
            parts.append(f"\n## {subject}\n\n| operation | what it does |\n|---|---|")
        parts.append(f"| `{method.upper()} {path}` | {operation.get('summary', '')} |")
    return "\n".join(parts)


PAGES: dict[str, Callable[[], str]] = {
    "commands": commands, "endpoints": endpoints, "control-plane": control_plane,
}  # fmt: skip


def _operations(document: Any) -> Iterator[tuple[str, str, Any]]:
    for path, methods in document["paths"].items():
        for method in METHODS:
            if method in methods:
                yield path, method, methods[method]


def _rows(schema: Any, document: Any) -> Iterator[str]:
    schema = _resolved(schema, document)
    required = schema.get("required", ())
    for name, each in schema.get("properties", {}).items():
        default = each.get("default")
        told = "required" if name in required else "" if default is None else f"`{default}`"
        yield f"| `{name}` | {_type(each, document)} | {told} |"


def _type(schema: Any, document: Any, depth: int = 0) -> str:
    """In words: alternatives by `or`, what a list holds, constants, bounds."""
    schema = _resolved(schema, document)
    if depth > DEPTH_MAX:
        return "…"
    if "anyOf" in schema:
        found = dict.fromkeys(_type(each, document, depth + 1) for each in schema["anyOf"])
        found.pop("null", None)
        return " or ".join(found) or "null"
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    kind = schema.get("type", "any")
    if kind == "array":
        return f"list of {_type(schema.get('items', {}), document, depth + 1)}"
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and high is not None and high < INT_32:
        return f"{kind}, {low} to {high}"
    longest = schema.get("maxLength")
    return kind if longest is None else f"{kind}, at most {longest} characters"


def _resolved(schema: Any, document: Any) -> Any:
    if "$ref" in schema:
        return document["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
    return schema
