"""Prices, for staff: the page and the API publish versions, for all or for one project."""

from __future__ import annotations

import pytest

from controlplane.catalog.selectors import model_find, price_list_all
from controlplane.core.audit.entries import OPERATOR
from controlplane.kernel.ids import public_id
from tests.support.people import Cast, make_cast, signed_in
from tests.support.rules import make_models

JSON = "application/json"
RATES = {"input_pico": "150000", "cached_pico": "30000", "output_pico": "600000"}


@pytest.fixture
def cast(database: str) -> Cast:
    made = make_cast()
    make_models("tiny")
    return made


def _versions() -> list[tuple[int, object, int]]:
    model = model_find(name="tiny")
    assert model is not None
    found = price_list_all(actor=OPERATOR, model=model)
    return [(row.version, row.project_id, row.batch_permille) for row in found]


def test_staff_publish_a_price_for_one_project(cast: Cast) -> None:
    staff = signed_in(cast.stella)
    before = _versions()
    form = {"model": "tiny", "project": str(cast.project.id), **RATES}
    form |= {"batch_permille": "500", "priority_permille": "2000"}
    page = staff.post("/prices/publish", form, follow=True).content.decode()
    assert "applies from now on" in page
    assert f"{cast.acme.name} · {cast.project.name}" in page
    assert _versions() == [(len(before) + 1, cast.project.id, 500), *before]
    wrong = staff.post("/prices/publish", form | {"cached_pico": "1.5"}, follow=True)
    assert "Must be a whole number" in wrong.content.decode()
    assert signed_in(cast.alice).get("/prices").status_code == 403


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
