"""Configuration under /api/blueprint: export, validate, compare, apply; a dry run unless told."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from django.test import Client

from controlplane.catalog.selectors import pool_find
from tests.support.people import make_cast, signed_in
from tests.support.rules import make_models

TEXT = "sluice: 1\npools:\n  - name: default\n    nodes_max: 7\n"


@pytest.fixture
def stella(database: str) -> Client:
    """Staff, signed in, where there is a pool."""
    make_models("small")
    return signed_in(make_cast().stella)


def ask(client: Client, operation: str, body: object) -> tuple[int, Any]:
    answer = client.post(
        f"/api/blueprint/{operation}", msgspec.json.encode(body), content_type="application/json"
    )
    return answer.status_code, answer.json()


def nodes_max() -> int:
    pool = pool_find(name="default")
    assert pool is not None
    return pool.nodes_max


def test_a_document_is_tried_and_applied(stella: Client) -> None:
    assert ask(stella, "validate", {"text": TEXT}) == (200, {"valid": True})
    change = {"path": "pools[0].nodes_max", "before": 1, "after": 7}
    assert ask(stella, "diff", {"text": TEXT}) == (200, {"changes": [change]})
    tried = ask(stella, "apply", {"text": TEXT})
    assert tried == (200, {"applied": False, "changes": [change]}) and nodes_max() == 1
    done = ask(stella, "apply", {"text": TEXT, "dry_run": False})
    assert done == (200, {"applied": True, "changes": [change]}) and nodes_max() == 7
    exported = stella.get("/api/blueprint?organization=Acme").json()["text"]
    assert ask(stella, "diff", {"text": exported}) == (200, {"changes": []})


def test_a_slip_has_its_path_and_line(stella: Client) -> None:
    status, answer = ask(stella, "diff", {"text": TEXT.replace("nodes_max", "nodes")})
    assert status == 400
    fields = answer["error"]["fields"]
    assert fields == {"pools[0].nodes": ["Unknown field. (line 4)"]}
    assert ask(stella, "diff", {"text": 1})[0] == 400
    assert stella.get("/api/blueprint?organization=Nobody").status_code == 400
