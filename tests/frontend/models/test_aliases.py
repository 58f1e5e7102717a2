"""Models on the pages: further names, and removal where nothing needs them."""

from __future__ import annotations

import pytest
from django.test import Client

from controlplane.catalog.models import Model
from controlplane.catalog.selectors import model_find, model_list
from controlplane.catalog.services import model_create
from controlplane.core.audit.entries import OPERATOR
from controlplane.routing.aliases import aliases_of
from controlplane.routing.selectors import rules_of, ruleset_in_force
from tests.catalog.test_catalog import draft
from tests.support.people import Cast, make_cast, signed_in
from tests.support.rules import generates, make_models, publish

JSON = "application/json"


@pytest.fixture
def cast(database: str) -> Cast:
    made = make_cast()
    make_models("tiny", "other")
    return made


def _act(staff: Client, name: str, **form: str) -> str:
    return staff.post(f"/catalog/act/{name}", form, follow=True).content.decode()


def test_an_alias_is_a_rule_and_goes_again(cast: Cast) -> None:
    publish(generates("first", "other"))
    staff = signed_in(cast.stella)
    assert "small leads to tiny" in _act(staff, "tiny", act="alias", alias="small")
    assert aliases_of("tiny") == ["small"] and aliases_of("other") == []
    assert [rule.name for rule in rules_of(ruleset_in_force())] == ["first", "alias-small"]
    shown = signed_in(cast.alice).get("/catalog/of/tiny").content.decode()
    assert "<dt>Aliases</dt>" in shown and "small" in shown
    assert "no longer leads" in _act(staff, "tiny", act="unalias", alias="small")
    assert [rule.name for rule in rules_of(ruleset_in_force())] == ["first"]
    assert "is no alias of tiny" in _act(staff, "tiny", act="unalias", alias="small")


@pytest.mark.parametrize(
    ("alias", "told"),
    [("other", "is named"), ("a b", "Use letters"), ("taken", "already leads"), ("", "required")],
)
def test_a_name_that_cannot_be_an_alias_says_why(cast: Cast, alias: str, told: str) -> None:
    staff = signed_in(cast.stella)
    _act(staff, "other", act="alias", alias="taken")
    assert told in _act(staff, "tiny", act="alias", alias=alias)
    assert aliases_of("tiny") == []


def test_a_model_goes_once_nothing_needs_it_and_may_come_back(cast: Cast) -> None:
    staff = signed_in(cast.stella)
    _act(staff, "tiny", act="alias", alias="small")
    assert "the rule alias-small leads to it" in _act(staff, "tiny", act="remove")
    assert model_find(name="tiny") is not None
    _act(staff, "tiny", act="unalias", alias="small")
    assert "tiny is removed" in _act(staff, "tiny", act="remove")
    assert model_find(name="tiny") is None
    assert "tiny" not in {one.name for one in model_list()}
    assert "tiny" in {one.name for one in model_list(removed=True)}
    assert "tiny" not in signed_in(cast.alice).get("/catalog").content.decode()
    again = model_create(actor=OPERATOR, draft=draft(name="tiny", context_window=8_192))
    assert Model.objects.get(name="tiny") == again and again.enabled
    assert model_find(name="tiny") is not None


def test_programs_do_the_same(cast: Cast) -> None:
    staff, path = signed_in(cast.stella), "/api/catalog/models"
    sizes = {"pool": "default", "context_window": 8_192, "output_tokens_default": 64}
    new = {"name": "org/new:1", **sizes, "output_tokens_max": 512}
    assert staff.post(path, new, JSON).json()["enabled"] is True
    one = f"{path}/org/new:1"
    changed = staff.put(f"{one}/definition", {**sizes, "output_tokens_max": 1_024}, JSON)
    assert changed.json()["output_tokens_max"] == 1_024
    assert staff.post(f"{one}/aliases", {"alias": "newest"}, JSON).json()["aliases"] == ["newest"]
    needed = staff.post(f"{one}/remove")
    assert needed.status_code == 400 and "alias-newest" in needed.content.decode()
    assert staff.post(f"{one}/aliases/end", {"alias": "newest"}, JSON).json()["aliases"] == []
    assert staff.put(f"{one}/enabled", {"enabled": False}, JSON).json()["enabled"] is False
    assert staff.post(f"{one}/remove").status_code == 204
    assert staff.get(f"{one}/aliases").status_code == 404
    assert "org/new:1" not in {row["name"] for row in staff.get(path).json()["data"]}
