"""The Configuration page through Django's client: export, compare, apply; who may."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest
import yaml
from django.test import Client

from controlplane.catalog.selectors import pool_find
from tests.support.people import Cast, make_cast, signed_in
from tests.support.rules import make_models

TEXT = "sluice: 1\npools:\n  - name: default\n    nodes_max: 7\n"


@pytest.fixture
def cast(database: str) -> Cast:
    """People, and a model in a pool."""
    make_models("small")
    return make_cast()


@pytest.fixture
def stella(cast: Cast) -> Client:
    """Staff, signed in."""
    return signed_in(cast.stella)


def words(answer: Any) -> str:
    return html.unescape(answer.content.decode())


def test_what_is_configured_can_be_kept(stella: Client) -> None:
    answer = stella.get("/configuration/file")
    assert "attachment" in answer["Content-Disposition"]
    assert yaml.safe_load(answer.content)["pools"][0]["name"] == "default"


def test_a_document_is_compared_then_applied(stella: Client) -> None:
    compared = stella.post("/configuration/compare", {"text": TEXT})
    assert "1 value would change" in words(compared) and "pools[0].nodes_max" in words(compared)
    pool = pool_find(name="default")
    assert pool is not None and pool.nodes_max == 1
    found = re.search(r'name="compared" value="(\w+)"', words(compared))
    assert found is not None
    other = {"text": TEXT.replace("7", "8"), "compared": found[1]}
    assert "Compare it again" in words(stella.post("/configuration/apply", other))
    wanted = {"text": TEXT, "compared": found[1]}
    applied = stella.post("/configuration/apply", wanted, follow=True)
    assert "1 value changed." in words(applied)
    pool = pool_find(name="default")
    assert pool is not None and pool.nodes_max == 7
    again = stella.post("/configuration/compare", {"text": TEXT})
    assert "changes nothing" in words(again)


def test_a_slip_is_told_and_the_text_stays(stella: Client) -> None:
    slip = TEXT.replace("nodes_max", "nodes")
    answer = stella.post("/configuration/compare", {"text": slip})
    assert answer.status_code == 422
    assert "(line 4)" in words(answer) and slip in words(answer)


def test_ready_documents_stand_in_the_form(stella: Client) -> None:
    assert "name: chat" in words(stella.get("/configuration?ready=dispatch-rules"))
    assert stella.get("/configuration?ready=../document").status_code == 404


def test_only_staff_may(cast: Cast) -> None:
    owner = signed_in(cast.alice)
    assert owner.get("/configuration").status_code == 403
    assert owner.get("/configuration/file").status_code == 403
    assert owner.post("/configuration/apply", {"text": TEXT}).status_code == 403
