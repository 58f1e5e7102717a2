"""The pages Keys and Limits: scopes at creation, rotation, the report, and which limit binds."""

from __future__ import annotations

import json
import re
import uuid

import pytest

from controlplane.composed.keys.services import KeyOrder, key_make
from controlplane.quotas.selectors import rate_limit_map
from controlplane.quotas.services import LimitSet, rate_limit_set
from controlplane.tenants.keys import KeyTerms, apikey_create, apikey_revoke
from controlplane.tenants.selectors import apikey_list
from tests.browser.history import write_history
from tests.support.people import Cast, make_cast, signed_in
from tests.support.rules import make_models

pytestmark = pytest.mark.usefixtures("database")
REFUSED = re.compile(r'<script id="refused" type="application/json">(.*?)</script>', re.DOTALL)
SECRET = re.compile(r"sk_sluice_\w{12}_\w{43}_\w{6}")


def form(cast: Cast, **more: object) -> dict[str, object]:
    """A key with every scope."""
    return {
        "form_id": uuid.uuid4().hex,
        "label": "scoped",
        "project": str(cast.project.id),
        "lifetime": "30",
        "endpoints": ["chat", "key"],
        "networks": "10.0.0.0/8, 192.0.2.7",
        "requests_per_day": "500",
        "concurrency": "4",
        **more,
    }


def test_a_key_is_made_with_all_its_scopes() -> None:
    cast = make_cast()
    alice = signed_in(cast.alice)
    page = alice.post("/keys/create", form(cast, budget="12.5", budget_period="month"))
    assert SECRET.search(page.content.decode())
    (key,) = apikey_list(user=cast.alice)
    assert (key.allowed_endpoints, key.networks) == (
        ["chat", "key"],
        ["10.0.0.0/8", "192.0.2.7/32"],
    )
    limit = rate_limit_map(user=cast.alice)[key.id]
    assert (limit.requests_per_day, limit.concurrency) == (500, 4)
    listed = alice.get("/keys").content.decode()
    for told in ("for chat, key", "from 10.0.0.0/8", "500 requests/day", "4 concurrent", "$12.50"):
        assert told in listed, told


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"networks": "10.0.0.1/8"}, "has host bits set"),
        ({"budget": "much"}, "Must be dollars"),
        ({"concurrency": "0"}, "Must be 1 to"),
        ({"endpoints": ["responses"]}, "Select a valid choice"),
    ],
)
def test_what_is_wrong_is_said_at_its_field(wrong: dict[str, object], told: str) -> None:
    cast = make_cast()
    answer = signed_in(cast.alice).post("/keys/create", form(cast, **wrong))
    assert answer.status_code == 422 and told in answer.content.decode()
    assert apikey_list(user=cast.alice) == []


def test_a_developer_is_offered_no_budget() -> None:
    cast = make_cast()
    bob = signed_in(cast.bob)
    assert 'name="budget"' not in bob.get("/keys").content.decode()
    assert bob.post("/keys/create", form(cast, budget="1")).status_code == 403
    assert apikey_list(user=cast.bob) == []


def test_rotation_shows_the_new_secret_once_and_links_both() -> None:
    cast = make_cast()
    key = apikey_create(actor=cast.alice, project=cast.project, label="k").key
    bob = signed_in(cast.bob)
    page = bob.post(f"/keys/{key.id.hex}/rotate", {"overlap": "259200"}).content.decode()
    secret = SECRET.search(page)
    assert secret and secret[0] not in bob.get("/keys").content.decode()
    new, old = apikey_list(user=cast.bob)
    assert new.replaces == old and "replaced by a new key" in page
    listed = bob.get("/requests").content.decode()
    assert f">{new.redacted[-5:]} k<" in listed and f">{old.redacted[-5:]} k<" in listed
    assert new.id.hex in bob.get(f"/keys/{old.id.hex}").content.decode()
    assert old.id.hex in bob.get(f"/keys/{new.id.hex}").content.decode()
    again = bob.post(f"/keys/{key.id.hex}/rotate", follow=True).content.decode()
    assert "Only an active key can be rotated" in again
    assert signed_in(cast.charlie).post(f"/keys/{key.id.hex}/rotate").status_code == 404


def test_the_report_tells_what_a_key_touched_and_offers_to_revoke() -> None:
    cast = make_cast()
    make_models("m-1")
    key = apikey_create(actor=cast.alice, project=cast.project, label="leaked").key
    write_history(cast, key, "m-1")
    alice = signed_in(cast.alice)
    page = alice.get(f"/keys/{key.id.hex}").content.decode()
    assert "requests in the last 30 days" in page and 'data-opens="revoke-key"' in page
    apikey_revoke(actor=cast.alice, key=key)
    page = alice.get(f"/keys/{key.id.hex}").content.decode()
    assert "no gateway accepted a request after that" in page
    assert 'data-opens="revoke-key"' not in page
    assert signed_in(cast.charlie).get(f"/keys/{key.id.hex}").status_code == 404


def test_the_page_says_which_limit_binds() -> None:
    cast = make_cast()
    make_models("m-1", "m-2")
    order = KeyOrder("k", KeyTerms(models=["m-2"]), limits=LimitSet(requests_per_min=50))
    key = key_make(actor=cast.bob, project=cast.project, order=order).key
    rate_limit_set(actor=cast.alice, subject=cast.acme, requests_per_min=40)
    page = signed_in(cast.bob).get(f"/keys/{key.id.hex}").content.decode()
    row = re.search(r"Requests per minute</th>(.*?)</tr>", page, re.DOTALL)
    assert row and re.findall(r'class="number">([^<]+)<', row[1]) == ["50", "–", "40"]
    assert "<strong>organization</strong>" in row[1]
    other = signed_in(cast.bob).get(f"/keys/{key.id.hex}?model=m-1").content.decode()
    assert "The key does not allow this model." in other


def test_limits_are_seen_by_all_and_set_by_who_may() -> None:
    cast = make_cast()
    bob, alice = signed_in(cast.bob), signed_in(cast.alice)
    assert "No limits yet" in bob.get("/limits").content.decode()
    wanted = {"scope": "project", "subject": str(cast.project.id), "concurrency": "3"}
    assert bob.post("/limits/set", wanted).status_code == 403
    told = alice.post("/limits/set", wanted, follow=True).content.decode()
    assert "The limits are saved" in told
    assert rate_limit_map(user=cast.bob)[cast.project.id].concurrency == 3
    seen = bob.get("/limits").content.decode()
    assert "No limits yet" not in seen and "<dialog" not in seen.partition("</main>")[0]
    assert "Your role cannot set limits; ask an owner or admin." in seen
    for wrong in ({"concurrency": "0"}, {"subject": "x"}):
        told = alice.post("/limits/set", {**wanted, **wrong}, follow=True).content.decode()
        kept = json.loads(REFUSED.findall(told)[0])
        assert kept["errors"].keys() == wrong.keys()
        assert kept["fields"]["concurrency"] == [wrong.get("concurrency", "3")]
    foreign = {**wanted, "subject": str(cast.other_project.id)}
    assert alice.post("/limits/set", foreign).status_code == 404


def test_limits_of_each_end_user_and_of_a_model_are_set_beside_the_others() -> None:
    cast = make_cast()
    make_models("m-1")
    alice = signed_in(cast.alice)
    wanted = {"scope": "project", "subject": str(cast.project.id), "requests_per_day": "7"}
    for part in ({}, {"per_user": "1"}, {"model": "m-1"}):
        told = alice.post("/limits/set", {**wanted, **part}, follow=True).content.decode()
        assert "The limits are saved" in told
    for name in (
        cast.project.name,
        f"{cast.project.name}, each end user",
        f"{cast.project.name}, m-1",
    ):
        assert f'title="{name}"' in told
    for wrong in ({"model": "m-2"}, {"model": "m-1", "per_user": "1"}):
        told = alice.post("/limits/set", {**wanted, **wrong}, follow=True).content.decode()
        assert "Model: Must be the name of a model" in told
