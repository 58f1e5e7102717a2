"""Models: everybody sees the catalogue; staff add, change, price and switch off, page and API."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from django.test import Client

from controlplane.catalog.models import Model
from controlplane.catalog.selectors import model_find, price_list_all
from controlplane.catalog.services import price_override_end
from controlplane.connections.models import Connection, ConnectionModel
from controlplane.core.audit.entries import OPERATOR
from controlplane.hosts.models import Deployment
from controlplane.kernel.ids import public_id
from controlplane.tenants import selectors
from controlplane.tenants.selectors import project_shares
from tests.support.people import Cast, make_cast, signed_in
from tests.support.rules import make_models

JSON = "application/json"
RATES = {"input_pico": "150000", "cached_pico": "30000", "output_pico": "600000"}
USD = {"input_pico": "0.15", "cached_pico": "0.03", "output_pico": "0.60"}
NODE = {"server": "node"}
TIMES = {"batch_permille": "0.5", "priority_permille": "2"}
ADDED = {
    "name": "org/big:1", "task": "generate", "pool": "default", "context_window": "32768",
    "output_tokens_default": "512", "output_tokens_max": "4096", "images_max": "0",
    "owner": "acme",
}  # fmt: skip


@pytest.fixture
def cast(database: str) -> Cast:
    made = make_cast()
    make_models("tiny")
    return made


def _model(name: str) -> Model:
    found = model_find(name=name)
    assert found is not None
    return found


def _versions(name: str = "tiny") -> list[tuple[int, object, int, int]]:
    found = price_list_all(actor=OPERATOR, model=_model(name))
    return [(row.version, row.project_id, row.input_pico, row.batch_permille) for row in found]


def _act(staff: Client, name: str, **form: str) -> str:
    return staff.post(f"/catalog/act/{name}", form, follow=True).content.decode()


def test_a_model_is_added_priced_and_switched_off_on_the_pages(cast: Cast) -> None:
    staff, developer = signed_in(cast.stella), signed_in(cast.alice)
    pool = _model("tiny").pool
    added = staff.post("/catalog/add", ADDED | NODE | {"pool": pool}, follow=True).content.decode()
    assert "no price yet" in added
    assert "org/big:1 is added" in added
    look = _act(staff, "org/big:1", act="price", **USD, **TIMES)
    assert "Publish this price?" in look
    assert _versions("org/big:1") == []
    published = _act(staff, "org/big:1", act="price", looked="1", **USD, **TIMES)
    assert "Version 1 of org/big:1 applies from now on" in published
    assert _versions("org/big:1") == [(1, None, 150_000, 500)]
    assert ">×0.5<" in published and ">×2<" in published and 'value="0.5"' in published
    seen = developer.get("/catalog").content.decode()
    assert "org/big:1" in seen
    assert "no node serves it" in seen
    assert ">0.15<" in seen
    assert "Add a model" not in seen
    assert "disabled" in _act(staff, "org/big:1", act="switch")
    assert "org/big:1" not in developer.get("/catalog").content.decode()
    assert developer.get("/catalog/of/org/big:1").status_code == 404
    assert "is enabled" in _act(staff, "org/big:1", act="switch")
    assert developer.get("/catalog/of/org/big:1").status_code == 200


def test_what_is_wrong_is_told_beside_what_was_typed(cast: Cast) -> None:
    staff = signed_in(cast.stella)
    pool = _model("tiny").pool
    over = staff.post("/catalog/add", ADDED | NODE | {"pool": pool, "output_tokens_max": "99999"})
    assert over.status_code == 422
    assert 'value="org/big:1"' in over.content.decode()
    assert not Model.objects.filter(name="org/big:1").exists()
    twice = staff.post("/catalog/add", ADDED | NODE | {"pool": pool, "name": "tiny"})
    assert twice.status_code == 422
    cents = staff.post("/catalog/act/tiny", {"act": "price", **USD, **TIMES, "input_pico": "cheap"})
    assert cents.status_code == 422
    assert "Must be dollars per million tokens" in cents.content.decode()
    assert 'value="cheap"' in cents.content.decode()
    above = {"act": "price", "looked": "1", **USD, **TIMES, "cached_pico": "9"}
    assert "Must not be above" in staff.post("/catalog/act/tiny", above).content.decode()
    assert staff.post("/catalog/act/tiny", {"act": "paint"}).status_code == 404
    assert staff.post("/catalog/act/none", {"act": "switch"}).status_code == 404


def test_a_model_is_added_with_its_price_and_what_serves_it(cast: Cast) -> None:
    staff, pool = signed_in(cast.stella), _model("tiny").pool
    asked = ADDED | USD | {"pool": pool}
    held = asked | {"server": "folder", "source": "/models/big"}
    assert "org/big:1 is added" in staff.post("/catalog/add", held, follow=True).content.decode()
    assert _versions("org/big:1") == [(1, None, 150_000, 1000)]
    row = Deployment.objects.get(name="org-big-1")
    assert (row.model, row.source_name, row.window) == ("org/big:1", "/models/big", 32_768)
    assert "org-big-1" in staff.get("/catalog/of/org/big:1", headers={"hx-request": "true"}).text
    told = staff.get("/catalog/of/org/big:1").text
    assert 'data-poll="2000"' in told and "org-big-1" in told

    far = asked | {"name": "far", "server": "url", "source": "http://127.0.0.1:9/v1"}
    page = staff.post("/catalog/add", far | {"upstream": "gpt"}, follow=True).content.decode()
    assert "far is added" in page and "reach" in page
    served = ConnectionModel.objects.get(model__name="far")
    assert (served.upstream, served.connection.kind) == ("gpt", "other")
    assert _versions("far")[0][2:] == (150_000, 1000)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"server": "folder", "source": ""}, "Enter where the model is."),
        ({"server": "folder", "source": "models"}, "absolute"),
        ({"server": "url", "source": "ftp://x"}, "Must be a URL that begins with https://"),
        ({"server": "url", "source": "https://x", "secret": "short"}, "Must be 8 to 500"),
        ({"server": "url", "source": "https://x", "cached_pico": "9"}, "Must not be above"),
        ({"server": "url", "source": "https://x", "output_tokens_max": "0"}, "at least 1"),
        ({"server": "url", "source": "https://x", "name": "tiny"}, "in the catalogue already"),
        ({"cached_pico": ""}, "Enter all three prices, or leave all blank."),
    ],
)
def test_nothing_is_added_where_a_part_of_it_is_wrong(
    cast: Cast, wrong: dict[str, str], told: str
) -> None:
    staff, pool = signed_in(cast.stella), _model("tiny").pool
    answer = staff.post("/catalog/add", ADDED | NODE | USD | {"pool": pool} | wrong)
    assert answer.status_code == 422
    assert told in answer.content.decode()
    assert "short" not in answer.content.decode().partition("of-url")[2].partition("</div>")[0]
    assert not Model.objects.filter(name="org/big:1").exists()
    assert not Connection.objects.exists() and not Deployment.objects.exists()


def test_a_change_keeps_what_its_form_does_not_show(cast: Cast) -> None:
    staff, before = signed_in(cast.stella), _model("tiny")
    given = {name: str(getattr(before, name)) for name in ADDED if name not in ("name", "task")}
    told = _act(staff, "tiny", act="change", **given | {"owner": "lab", "task": "embed"})
    assert "tiny is changed" in told
    after = _model("tiny")
    assert (after.owner, after.task) == ("lab", before.task)
    assert after.image_patch == before.image_patch
    wrong = staff.post("/catalog/act/tiny", {"act": "change", **given, "context_window": "0"})
    assert wrong.status_code == 422


def test_a_price_for_one_project_is_compared_with_what_that_pays(cast: Cast) -> None:
    staff = signed_in(cast.stella)
    before = _versions()
    mine = {"act": "price", "project": str(cast.project.id), **USD, **TIMES}
    look = _act(staff, "tiny", **mine)
    assert f"{cast.acme.name} · {cast.project.name}" in look
    _act(staff, "tiny", looked="1", **mine)
    assert _versions() == [(len(before) + 1, cast.project.id, 150_000, 500), *before]
    again = _act(staff, "tiny", **mine | {"input_pico": "0.30"})
    assert "+100 %" in again
    price_override_end(actor=OPERATOR, model=_model("tiny"), project=cast.project)
    after = _act(staff, "tiny", **mine | {"input_pico": "0.15"})
    assert "unchanged" not in after.split("Publish this price?")[1].split("</tbody>")[0]
    assert staff.post("/catalog/act/tiny", mine | {"project": "none"}).status_code == 404


def test_a_price_may_begin_later_and_tells_whom_it_is_for(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    staff, before = signed_in(cast.stella), _versions()
    later = {"act": "price", "effective_from": "2999-01-01T00:00", **USD, **TIMES}
    look = _act(staff, "tiny", **later)
    assert "2999-01-01 00:00:00" in look and 'value="2999-01-01T00:00"' in look
    draft = "Add to a draft"
    assert draft not in look and draft in _act(staff, "tiny", **later | {"effective_from": ""})
    projects = Counter(one.organization_id for one in project_shares(actor=OPERATOR))
    told = f"the {projects.total()} projects of {len(projects)} organizations"
    assert told in look
    # However many a list shows, and a scope names.
    monkeypatch.setattr(selectors, "PROJECTS_SHOWN_MAX", 1)
    monkeypatch.setattr(selectors, "ORGANIZATIONS_MAX", 1)
    assert told in _act(staff, "tiny", **later)
    monkeypatch.undo()
    assert "applies from 2999-01-01 00:00:00 UTC on" in _act(staff, "tiny", looked="1", **later)
    assert len(_versions()) == len(before) + 1
    past = later | {"looked": "1", "effective_from": "2001-01-01T00:00"}
    assert "cannot take effect in the past" in _act(staff, "tiny", **past)
    mine = {"act": "price", "project": str(cast.project.id), "looked": "1", **USD, **TIMES}
    _act(staff, "tiny", **mine | {"effective_from": "2998-01-01T00:00"})
    # Its own price begins before the one of all does, but not now.
    assert f"the {projects.total() - 1} projects of " in _act(staff, "tiny", **later)
    assert told in _act(staff, "tiny", **later | {"effective_from": ""})


def test_a_purchase_price_counts_from_today(cast: Cast) -> None:
    staff = signed_in(cast.stella)
    assert "cost this from today" in _act(staff, "tiny", act="purchase", **USD)
    wrong = staff.post("/catalog/act/tiny", {"act": "purchase", **USD, "cached_pico": "9"})
    assert wrong.status_code == 422


def test_the_api_publishes_and_ends_an_override(cast: Cast) -> None:
    staff = signed_in(cast.stella)
    path = "/api/catalog/models/tiny/prices"
    mine = {"organization": str(cast.acme.id), "project": str(cast.project.id)}
    rates = {name: int(rate) for name, rate in RATES.items()}
    made = staff.post(path, rates | mine, content_type=JSON)
    assert (made.status_code, made.json()["project"]) == (201, public_id("proj", cast.project.id))
    ended = staff.post(f"{path}/end", mine, content_type=JSON)
    assert ended.status_code == 201
    assert ended.json()["effective_until"] == ended.json()["effective_from"]
    assert staff.post(f"{path}/end", mine, content_type=JSON).status_code == 400
    half = staff.post(path, rates | {"project": mine["project"]}, content_type=JSON)
    assert list(half.json()["error"]["fields"]) == ["project"]
    zoneless = staff.post(
        path, rates | {"effective_from": "2099-01-01T00:00:00"}, content_type=JSON
    )
    assert zoneless.status_code == 400
    assert list(zoneless.json()["error"]["fields"]) == ["effective_from"]
    listed = staff.get(path).json()["data"]
    assert [row["version"] for row in listed] == sorted(
        (row["version"] for row in listed), reverse=True
    )
    assert staff.get("/api/catalog/models/none/prices").status_code == 404
    assert signed_in(cast.alice).get(path).status_code == 403


def test_the_api_lists_what_an_organization_may_call(cast: Cast) -> None:
    path = f"/api/organizations/{public_id('org', cast.acme.id)}/models"

    def listed() -> dict[str, dict[str, Any]]:
        return {row["name"]: row for row in signed_in(cast.alice).get(path).json()["data"]}

    row = listed()["tiny"]
    assert (row["state"], row["abilities"]) == ("no_node", [])
    assert row["context_window"] == _model("tiny").context_window
    assert set(row["price"]) == {"input", "cached", "output"}
    _act(signed_in(cast.stella), "tiny", act="switch")
    assert "tiny" not in listed()
