"""Whatever is asked, lists, errors and moments have one form each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import settings
from django.test import Client

from tests.core.routes import ROUTES
from tests.core.samples import Things, make_things
from tests.core.test_authorization_matrix import address
from tests.support.servers import Servers, drop_database, make_database

LIST = {"object", "data", "first_id", "last_id", "has_more"}
MOMENT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d")
WRITTEN = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
READ = [one for one in ROUTES if one.method == "GET" and one.path.startswith(("api/", "v1/"))]
ERROR = ["message", "type", "param", "code", "fields"]


@pytest.fixture(scope="module")
def things(servers: Servers) -> Iterator[Things]:
    """One installation, which is only read."""
    make_database(servers.postgres)
    yield make_things()
    drop_database(servers.postgres)


@pytest.fixture
def operator(things: Things) -> Client:
    """Whoever may read everything, here of one organization."""
    headers = {
        "Authorization": f"Bearer {settings.OPERATOR_TOKEN}",
        "OpenAI-Organization": str(things.cast.acme.id),
    }
    return Client(headers=headers)


def walk(node: Any) -> Iterator[Any]:
    """A node and all below it."""
    yield node
    if isinstance(node, dict | list):
        for one in node.values() if isinstance(node, dict) else node:
            yield from walk(one)


def test_lists_and_moments(things: Things, operator: Client) -> None:
    lists, moments = 0, 0
    for route in READ:
        answer = operator.get(address(route, things))
        if answer.get("content-type", "") != "application/json" or answer.status_code != 200:
            continue
        body = answer.json()
        if "data" in body and body["object"] != "page":
            lists += 1
            assert body.keys() >= LIST, route.path
            ids = [row.get("id") for row in body["data"]]
            if ids and ids[0]:
                assert (body["first_id"], body["last_id"]) == (ids[0], ids[-1]), route.path
        for text in walk(body):
            if isinstance(text, str) and len(text) < 40 and MOMENT.match(text):
                moments += 1
                assert WRITTEN.fullmatch(text), (route.path, text)
    assert lists >= 25 and moments >= 25


@pytest.mark.parametrize(
    ("path", "status", "kind", "param", "code"),
    [
        ("/api/audit?limit=0", 400, "invalid_request_error", "limit", None),
        ("/api/audit?from=x", 400, "invalid_request_error", "from", None),
        ("/v1/organization/costs", 400, "invalid_request_error", "start_time", None),
        ("/api/routing/versions/77", 404, "invalid_request_error", None, "not_found"),
        ("/api/nothing", 404, "invalid_request_error", None, "unknown_url"),
        ("/api/routing/rollback", 405, "invalid_request_error", None, "method_not_allowed"),
    ],
)
def test_errors(
    operator: Client, path: str, status: int, kind: str, param: str | None, code: str | None
) -> None:
    answer = operator.get(path)
    error = answer.json()["error"]
    assert (answer.status_code, list(error)) == (status, ERROR)
    assert (error["type"], error["param"], error["code"]) == (kind, param, code)
    assert list(error["fields"]) == ([param] if param else [])
    assert error["message"].startswith(f"{param}: " if param else "")


def test_errors_of_callers(things: Things) -> None:
    for token, status, kind, code in (
        ("x", 401, "invalid_request_error", "invalid_api_key"),
        (things.callers.admin_key, 403, "permission_error", "permission_denied"),
    ):
        answer = Client(headers={"Authorization": f"Bearer {token}"}).get("/api/audit")
        error = answer.json()["error"]
        assert (answer.status_code, error["type"], error["code"]) == (status, kind, code)
        assert list(error) == ERROR and error["fields"] == {}


def test_a_body_of_another_type_and_one_that_is_no_json(operator: Client) -> None:
    for content, kind, status, code in (
        ("{", "application/json", 400, None),
        ("a=1", "text/plain", 415, "unsupported_content_type"),
    ):
        answer = operator.post("/api/blueprint/validate", content, content_type=kind)
        error = answer.json()["error"]
        assert (answer.status_code, list(error), error["code"]) == (status, ERROR, code)
