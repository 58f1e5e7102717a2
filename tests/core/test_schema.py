"""The API's description: valid, with every operation, its types, its errors and its callers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.conf import settings
from django.test import Client
from drf_spectacular.validation import validate_schema

from tests.core.test_authorization_matrix import METHODS, PARAMETER, url_patterns

CHANGES = {"post", "put", "patch", "delete"}
SCHEMES: list[dict[str, list[str]]] = [{"operatorToken": []}, {"adminKey": []}, {"cookieAuth": []}]
ERRORS = {"400", "401", "403", "404"}
ERRORS_OF_CHANGES = {"409", "413", "422"}
Operation = tuple[str, str, dict[str, Any]]


@pytest.fixture
def description(database: str) -> dict[str, Any]:
    client = Client(headers={"Authorization": f"Bearer {settings.OPERATOR_TOKEN}"})
    found: dict[str, Any] = client.get("/api/schema").json()
    return found


@pytest.fixture
def operations(description: dict[str, Any]) -> list[Operation]:
    return [
        (path, method, one)
        for path, methods in description["paths"].items()
        for method, one in methods.items()
    ]


def test_it_is_valid_openapi(description: dict[str, Any]) -> None:
    assert description["openapi"].startswith("3.1")
    validate: Callable[[Any], None] = validate_schema
    validate(description)
    broken = {**description, "paths": {"no-slash": 1}}
    with pytest.raises(Exception, match="no-slash"):
        validate(broken)


def test_every_operation_is_in_it(operations: list[Operation]) -> None:
    served = {
        ("/" + PARAMETER.sub(r"{\1}", path), method.lower())
        for path, view in url_patterns()
        for method in METHODS
        if path.startswith(("api/", "v1/"))
        and path != "api/schema"
        and hasattr(getattr(view, "view_class", None), method.lower())
    }
    assert served == {(path, method) for path, method, _ in operations}


def test_every_answer_is_typed(description: dict[str, Any], operations: list[Operation]) -> None:
    loose = [
        f"{method} {path}"
        for path, method, one in operations
        for status, answer in one["responses"].items()
        if status < "300"
        and status != "204"
        and not all(_typed(each["schema"]) for each in _contents(answer))
    ]
    assert loose == []
    names = {name for _, _, one in operations for name in _refs(one)}
    assert names and names <= set(description["components"]["schemas"])


def _contents(answer: dict[str, Any]) -> list[dict[str, Any]]:
    return list(answer.get("content", {}).values()) or [{"schema": {}}]


def _typed(schema: dict[str, Any]) -> bool:
    """More than 'an object'."""
    return "$ref" in schema or "properties" in schema or schema.get("type") in ("string", "array")


def _refs(node: Any) -> list[str]:
    if isinstance(node, dict):
        own = [node["$ref"].rpartition("/")[2]] if "$ref" in node else []
        return own + [name for value in node.values() for name in _refs(value)]
    return [name for value in node for name in _refs(value)] if isinstance(node, list) else []


def test_errors_callers_and_keys_are_told(operations: list[Operation]) -> None:
    for path, method, one in operations:
        wanted = ERRORS | (ERRORS_OF_CHANGES if method in CHANGES else set())
        assert wanted <= set(one["responses"]), (method, path)
        assert one["security"] in (SCHEMES, [{}]), (method, path)
        keyed = any(each["name"] == "Idempotency-Key" for each in one.get("parameters", []))
        assert keyed is (method in CHANGES), (method, path)
        assert one.get("summary"), (method, path)


def test_names_of_operations_are_unique(operations: list[Operation]) -> None:
    names = [one["operationId"] for _, _, one in operations]
    assert len(names) == len(set(names))


def test_strangers_are_not_told(database: str) -> None:
    assert Client().get("/api/schema").status_code == 401
