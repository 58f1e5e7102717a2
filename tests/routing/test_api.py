"""The API of routing rules: what operations answer, who may ask, what bad input is told."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from django.conf import settings
from django.test import Client

from tests.support.people import Cast, make_cast, signed_in
from tests.support.rules import generates, make_models
from tests.support.traffic import asked, routed, store

BASE = "/api/routing"
TO_SMALL = generates("all", "small")
TO_LARGE = generates("all", "large")
BODY = {"rules": [TO_SMALL], "revision": 1, "share_permille": 10}
OPERATIONS = [
    ("get", "/versions"),
    ("post", "/versions"),
    ("get", "/versions/1"),
    ("put", "/versions/1"),
    ("delete", "/versions/1"),
    ("post", "/versions/1/validate"),
    ("post", "/versions/1/dry-run"),
    ("post", "/versions/1/publish"),
    ("post", "/versions/1/canary"),
    ("post", "/versions/1/promote"),
    ("post", "/versions/1/stop"),
    ("get", "/canary"),
    ("post", "/rollback"),
]


@pytest.fixture
def cast(database: str) -> Cast:
    """People, and two models."""
    make_models("small", "large")
    return make_cast()


@pytest.fixture
def stella(cast: Cast) -> Client:
    """Staff, signed in."""
    return signed_in(cast.stella)


def ask(client: Client, method: str, path: str, body: object = None) -> Any:
    """The decoded answer, with its status under `status`."""
    answer = client.generic(
        method.upper(),
        f"{BASE}{path}",
        msgspec.json.encode({} if body is None else body),
        content_type="application/json",
    )
    found = answer.json() if answer.content else {}
    return {"status": answer.status_code, "body": found}


def create(client: Client, *rules: dict[str, Any]) -> int:
    made = ask(client, "post", "/versions", {"rules": list(rules), "note": "n"})
    assert made["status"] == 201
    return int(made["body"]["version"])


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_only_staff_may(cast: Cast, stella: Client, method: str, path: str) -> None:
    create(stella, TO_SMALL)
    assert ask(Client(), method, path, BODY)["status"] == 401
    refused = ask(signed_in(cast.alice), method, path, BODY)
    assert refused["status"] == 403
    assert list(refused["body"]) == ["error"]


def test_a_change_needs_the_csrf_token(cast: Cast) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(cast.stella, backend="django.contrib.auth.backends.ModelBackend")
    assert ask(client, "post", "/versions", {"rules": []})["status"] == 403
    assert ask(client, "get", "/versions")["body"]["data"] == []


def test_a_draft_is_made_read_changed_and_given_up(stella: Client) -> None:
    version = create(stella, TO_SMALL)
    read = ask(stella, "get", f"/versions/{version}")["body"]
    assert (read["state"], read["note"], read["rules"], read["revision"]) == (
        "draft",
        "n",
        [TO_SMALL],
        1,
    )
    assert read["created_by"] == "stella@example.org"
    change = {"rules": [TO_LARGE], "note": "m", "revision": 1}
    changed = ask(stella, "put", f"/versions/{version}", change)
    assert (changed["status"], changed["body"]["revision"]) == (200, 2)
    stale = ask(stella, "put", f"/versions/{version}", change)
    assert (stale["status"], list(stale["body"]["error"]["fields"])) == (409, ["revision"])
    assert ask(stella, "delete", f"/versions/{version}")["status"] == 204
    (listed,) = ask(stella, "get", "/versions")["body"]["data"]
    assert listed["state"] == "retired" and "rules" not in listed


def test_from_draft_to_publication_and_back(stella: Client) -> None:
    first, second = create(stella, TO_SMALL), create(stella, TO_LARGE)
    published = ask(stella, "post", f"/versions/{first}/publish", {"revision": 1})
    assert (published["status"], published["body"]["state"]) == (200, "published")
    late = ask(stella, "post", f"/versions/{second}/publish", {"revision": 1})
    assert (late["status"], list(late["body"]["error"]["fields"])) == (409, ["based_on"])
    rebase = {"rules": [TO_LARGE], "revision": 1, "rebase": first}
    assert ask(stella, "put", f"/versions/{second}", rebase)["body"]["based_on"] == first
    assert ask(stella, "post", f"/versions/{second}/publish", {"revision": 2})["status"] == 200
    back = ask(stella, "post", "/rollback")["body"]
    assert (back["version"], back["copy_of"], back["rules"]) == (3, first, [TO_SMALL])
    again = ask(stella, "post", "/rollback", {"version": second})["body"]
    assert (again["version"], again["copy_of"]) == (4, second)
    assert ask(stella, "post", "/rollback", {"version": 99})["status"] == 404


def test_a_canary_from_start_to_end(stella: Client, cast: Cast) -> None:
    ask(stella, "post", f"/versions/{create(stella, TO_SMALL)}/publish", {"revision": 1})
    version = create(stella, TO_LARGE)
    assert ask(stella, "get", "/canary")["body"] == {"canary": None}
    start = {"revision": 1, "share_permille": 100, "stops_itself": True}
    started = ask(stella, "post", f"/versions/{version}/canary", start)["body"]
    assert (started["state"], started["share_permille"]) == ("canary", 100)
    report = ask(stella, "get", "/canary")["body"]["canary"]
    assert (report["version"], report["against"], report["verdict"]) == (
        2,
        1,
        "not enough data yet",
    )
    assert [each["figure"] for each in report["figures"]] == [
        "errors", "ttft_p50", "ttft_p95", "cost", "output_tokens",
    ]  # fmt: skip
    stopped = ask(stella, "post", f"/versions/{version}/stop", {"reason": "slow"})["body"]
    assert stopped["state"] == "retired"
    third = create(stella, TO_LARGE)
    ask(stella, "post", f"/versions/{third}/canary", {"revision": 1, "share_permille": 5})
    assert ask(stella, "post", f"/versions/{third}/promote")["body"]["state"] == "published"
    assert ask(stella, "post", f"/versions/{third}/promote")["status"] == 409


def test_validation_tells_errors_and_warnings(stella: Client) -> None:
    version = create(stella, TO_SMALL, generates("b", "none-such"))
    found = ask(stella, "post", f"/versions/{version}/validate")["body"]["problems"]
    assert [(each["field"], each["warning"]) for each in found] == [
        ("rules[1].steps[0].targets[0].model", False),
        ("rules[0].steps[0].targets[0]", True),
        ("rules[1]", True),
    ]
    refused = ask(stella, "post", f"/versions/{version}/publish", {"revision": 1})
    assert refused["status"] == 400
    assert list(refused["body"]["error"]["fields"]) == ["rules[1].steps[0].targets[0].model"]


def test_a_dry_run_tells_who_and_what(stella: Client, cast: Cast) -> None:
    store([asked(cast, "small"), asked(cast, "large"), routed(cast, "x", "a@9", receipt=b"")])
    version = create(stella, TO_LARGE)
    found = ask(stella, "post", f"/versions/{version}/dry-run", {"hours": 2})["body"]
    assert found["total"]["moved"] == 1
    assert found["sample"]["requests"] == 3 and found["sample"]["alias_unknown"] == 1
    assert found["organizations"][0]["name"] == "Acme"
    assert found["moves"][0]["before"] == {"model": "small", "pool": "default"}
    assert found["moves"][0]["after"] == {"model": "large", "pool": "default"}
    assert ask(stella, "post", f"/versions/{version}/dry-run", {"hours": 0})["status"] == 400
    empty = create(stella, {"name": "a", "steps": []})
    refused = ask(stella, "post", f"/versions/{empty}/dry-run")
    assert list(refused["body"]["error"]["fields"]) == ["rules[0].steps"]


@pytest.mark.parametrize(
    ("method", "path", "body", "field"),
    [
        ("post", "/versions", {}, "rules"),
        ("post", "/versions", {"rules": {}}, "rules"),
        ("post", "/versions", {"rules": [{"name": 1}]}, "rules[0].name"),
        ("post", "/versions", {"rules": [], "note": "x" * 201}, "note"),
        ("post", "/versions", {"rules": [], "note": "a\x00"}, "note"),
        ("post", "/versions", {"rules": [{"name": "a\x00", "steps": []}]}, "rules"),
        ("put", "/versions/1", {"rules": []}, "revision"),
        ("post", "/versions/1/publish", {}, "revision"),
        ("post", "/versions/1/canary", {"revision": 1}, "share_permille"),
        ("post", "/versions/1/canary", {"revision": 1, "share_permille": 1_000}, "share_permille"),
        ("post", "/versions/1/dry-run", {"hours": "many"}, "hours"),
        ("post", "/rollback", {"version": "x"}, "version"),
        ("post", "/rollback", {"versions": 1}, "versions"),
        ("post", "/rollback", [1], "body"),
    ],
)
def test_bad_input_is_told_at_its_field(
    stella: Client, method: str, path: str, body: object, field: str
) -> None:
    create(stella, TO_SMALL)
    refused = ask(stella, method, path, body)
    assert refused["status"] == 400
    assert list(refused["body"]["error"]["fields"]) == [field]


def test_what_is_no_json_is_refused(stella: Client) -> None:
    for body in (b"{", b"[" * 99_999):
        answer = stella.post(f"{BASE}/versions", body, content_type="application/json")
        assert answer.status_code == 400
    assert ask(stella, "get", "/versions/99")["status"] == 404


def test_the_description_names_every_operation(stella: Client) -> None:
    whole = stella.get("/api/schema").json()
    described = whole["paths"]
    found = {(method, path) for path, methods in described.items() for method in methods}
    assert {
        (method, BASE + path.replace("/1", "/{version}")) for method, path in OPERATIONS
    } <= found
    assert Client().get("/api/schema").status_code == 401
    bearer = {"authorization": f"Bearer {settings.OPERATOR_TOKEN}"}
    assert Client().get("/api/schema", headers=bearer).status_code == 200
    (canary,) = described[f"{BASE}/versions/{{version}}/canary"].values()
    schema = canary["requestBody"]["content"]["application/json"]["schema"]
    shape = whole["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    assert shape["required"] == ["revision", "share_permille"]
