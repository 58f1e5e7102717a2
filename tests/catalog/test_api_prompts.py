"""Prompt templates under /api/: what operations answer, and what bad input is told."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from django.test import Client

from tests.support.people import Cast, make_cast, signed_in

BODY = {
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "{{question}}"},
    ],
    "variables": [{"name": "question"}],
}


@pytest.fixture
def cast(database: str) -> Cast:
    """People."""
    return make_cast()


class Api:
    """The operations as Bob calls them."""

    def __init__(self, cast: Cast) -> None:
        self._client: Client = signed_in(cast.bob)
        self._base = f"/api/catalog/templates/{cast.acme.id}"

    def ask(self, method: str, path: str = "", body: object = None) -> tuple[int, Any]:
        """Status and decoded answer."""
        answer = self._client.generic(
            method, self._base + path, msgspec.json.encode(body or {}), "application/json"
        )
        return answer.status_code, answer.json() if answer.content else None


@pytest.fixture
def api(cast: Cast) -> Api:
    """With one template."""
    made = Api(cast)
    assert made.ask("POST", "", {"name": "support"})[0] == 201
    return made


def test_from_draft_to_publication_and_back(api: Api) -> None:
    status, draft = api.ask("POST", "/support/versions", {"body": BODY, "note": "first"})
    assert (status, draft["version"], draft["state"], draft["problems"]) == (201, 1, "draft", [])
    path = "/support/versions/1"
    status, changed = api.ask("PUT", path, {"body": BODY, "revision": 1})
    assert (status, changed["revision"]) == (200, 2)
    assert api.ask("POST", f"{path}/publish", {"revision": 1})[0] == 409
    assert api.ask("POST", f"{path}/publish", {"revision": 2})[1]["state"] == "published"
    api.ask("POST", "/support/versions", {"body": BODY})
    path = "/support/versions/2"
    trial = {"revision": 1, "share_permille": 50}
    assert api.ask("POST", f"{path}/canary", trial)[1]["share_permille"] == 50
    listed = api.ask("GET")[1]["data"]
    assert listed == [
        {"name": "support", "project": None, "published": 1, "canary": 2, "newest": 2}
    ]
    assert api.ask("POST", f"{path}/stop")[1]["state"] == "retired"
    api.ask("POST", "/support/versions", {"body": BODY})
    api.ask("POST", "/support/versions/3/publish", {"revision": 1})
    back = api.ask("POST", "/support/rollback")[1]
    assert (back["version"], back["copy_of"]) == (4, 1)
    assert [one["version"] for one in api.ask("GET", "/support")[1]["versions"]] == [4, 3, 2, 1]
    api.ask("POST", "/support/versions", {"body": BODY})
    assert api.ask("DELETE", "/support/versions/5") == (204, None)
    assert api.ask("GET", "/support/versions/5")[1]["state"] == "retired"


def test_a_dry_run_tells_what_is_sent_and_what_caches(api: Api) -> None:
    api.ask("POST", "/support/versions", {"body": BODY})
    path = "/support/versions/1/dry-run"
    tried = api.ask("POST", path, {"variables": {"question": "Why?"}})[1]
    assert tried["messages"][1] == {"role": "user", "content": "Why?"}
    assert (tried["bytes"], tried["stable_bytes"]) == (13, 9)
    status, refused = api.ask("POST", path)
    assert (status, list(refused["error"]["fields"])) == (400, ["variables.question"])


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "field"),
    [
        ("POST", "", {"name": "Not one"}, 400, "name"),
        ("POST", "", {"name": "support"}, 409, "name"),
        ("POST", "", {}, 400, "name"),
        ("POST", "/support/versions", {"body": {"messages": []}}, 400, "body.messages"),
        ("POST", "/none/versions", {"body": BODY}, 404, None),
        ("GET", "/support/versions/9", {}, 404, None),
        ("POST", "/support/rollback", {}, 409, "version"),
    ],
)
def test_bad_input_is_told_at_its_field(
    api: Api, method: str, path: str, body: dict[str, Any], status: int, field: str | None
) -> None:
    found, answer = api.ask(method, path, body)
    assert found == status
    assert list(answer["error"]["fields"]) == ([field] if field else [])
