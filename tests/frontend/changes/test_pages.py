"""Pages of changes: from the dialogs of limits, budgets and prices to a draft, and on."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client

from controlplane.billing.budgets.selectors import budget_list
from controlplane.changes.limits import LimitChanges
from controlplane.changes.prices import PriceChanges
from controlplane.kernel.ids import public_id
from controlplane.quotas.selectors import rate_limit_map
from tests.support.people import Cast, make_cast, signed_in
from tests.support.rules import make_models
from tests.support.traffic import asked, store


@pytest.fixture
def cast(database: str) -> Cast:
    make_models("small", "large")
    return make_cast()


@pytest.fixture
def alice(cast: Cast) -> Client:
    return signed_in(cast.alice)


def limits(cast: Cast, **more: Any) -> dict[str, Any]:
    return {"scope": "project", "subject": cast.project.id.hex, **more}


def text(client: Client, path: str) -> str:
    answer = client.get(path)
    assert answer.status_code == 200, path
    return " ".join(answer.content.decode().split())


def in_force(cast: Cast) -> int | None:
    found = rate_limit_map(user=cast.alice).get(cast.project.id)
    return found.requests_per_min if found else None


def test_limits_and_a_budget_go_into_one_draft_and_are_published_and_undone(
    cast: Cast, alice: Client
) -> None:
    made = alice.post("/limits/draft", limits(cast, requests_per_min=9))
    assert made["Location"] == "/limits/changes/1"
    alice.post("/limits/draft", limits(cast, requests_per_min=7))
    budget = {"subject": cast.project.id.hex, "amount": "2.50", "period": "day", "zone": "UTC"}
    assert alice.post("/budgets/draft", budget)["Location"] == "/limits/changes/1"
    assert in_force(cast) is None
    shown = text(alice, "/limits/changes/1")
    assert "requests per minute: <del>–</del> → <ins>7</ins>" in shown
    assert "budget, USD: <del>–</del> → <ins>2.500000000</ins>" in shown
    assert "/limits/changes" in text(alice, "/limits")

    answer = alice.post("/limits/changes/1/publish", {"revision": 3}, follow=True)
    assert "Version 1 is live" in answer.content.decode()
    assert in_force(cast) == 7
    (row,) = budget_list(actor=cast.alice, organization=cast.acme.id)
    assert row.allowance == 2_500_000_000
    assert "Roll back version 1" in text(alice, "/limits/changes")
    alice.post("/limits/changes/rollback", {"version": 1})
    assert in_force(cast) is None
    again = alice.post("/limits/changes/rollback", {"version": 1}, follow=True)
    assert "is not the last published change" in again.content.decode()
    assert "rollback of version 1" in text(alice, "/limits/changes")


def test_a_draft_is_edited_as_json_and_what_is_wrong_is_told(cast: Cast, alice: Client) -> None:
    alice.post("/limits/changes/draft")
    assert "Must change 1 to" in text(alice, "/limits/changes/1")
    save = {"revision": 1, "note": "n", "content": "{"}
    answer = alice.post("/limits/changes/1/save", save)
    assert answer.status_code == 422 and "Invalid JSON" in answer.content.decode()
    content = {"limits": [{"of": "proj_1", "concurrency": 3}]}
    alice.post("/limits/changes/1/save", {**save, "content": json.dumps(content)})
    assert "Must be the id of the organization" in text(alice, "/limits/changes/1")
    late = alice.post("/limits/changes/1/save", {**save, "content": json.dumps(content)})
    assert late.status_code == 409
    refused = alice.post("/limits/changes/1/publish", {"revision": 2})
    assert refused.status_code == 422
    alice.post("/limits/changes/1/discard")
    alice.post("/limits/changes/1/copy")
    states = [one.state for one in LimitChanges(cast.alice, cast.acme.id).newest()]
    assert states == ["draft", "retired"]


def test_a_dry_run_and_a_shadow_say_who_and_when(
    cast: Cast, alice: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice.post("/limits/draft", limits(cast, requests_per_min=1))
    assert "No requests to try it on" in text(alice, "/limits/changes/1/dry-run")
    store([asked(cast, "small") for _ in range(3)])
    shown = text(alice, "/limits/changes/1/dry-run?hours=1")
    assert "<dt>Newly refused</dt><dd>2</dd>" in shown
    for title in (
        "Limits that refuse with draft",
        "Writes to stores",
        "Projects",
        "Models",
        "When",
        "Limitations",
    ):
        assert f">{title}<" in shown, title
    alice.post("/limits/changes/1/shadow", {"revision": 1})
    assert in_force(cast) is None
    shown = text(alice, "/limits/changes")
    assert "/limits/changes/1/dry-run?hours=shadow" in shown
    assert "No requests to try it on" in text(alice, "/limits/changes/1/dry-run?hours=shadow")
    assert 'Shadow: <a href="/limits/changes/1">' in shown and ">shadow<" in shown.replace(" ", "")
    alice.post("/limits/changes/1/stop")
    assert "Shadow:" not in text(alice, "/limits/changes")


def test_the_list_does_not_replay_the_shadow(
    cast: Cast, alice: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice.post("/limits/draft", limits(cast, requests_per_min=1))
    alice.post("/limits/changes/1/shadow", {"revision": 1})

    def read(*_: object, **__: object) -> None:
        pytest.fail("requests were read")

    monkeypatch.setattr("controlplane.changes.dryruns.read_sample", read)
    assert "Shadow:" in text(alice, "/limits/changes")


def test_a_draft_of_too_much_is_told_where_it_is_typed(cast: Cast, alice: Client) -> None:
    alice.post("/limits/changes/draft")
    one = {"of": public_id("proj", cast.project.id), "concurrency": 3}
    save = {"revision": 1, "note": "", "content": json.dumps({"limits": [one] * 201})}
    answer = alice.post("/limits/changes/1/save", save)
    assert answer.status_code == 422 and "Must change 1 to 200" in answer.content.decode()


def test_an_unfinished_price_says_so_in_place_of_a_dry_run(cast: Cast) -> None:
    PriceChanges(cast.stella).draft_create({"prices": [{"model": "small", "project": "x"}]})
    answer = signed_in(cast.stella).get("/catalog/changes/1/dry-run")
    assert answer.status_code == 422 and "Must be the id of a project" in answer.content.decode()


def test_prices_are_drafted_from_a_models_page(cast: Cast) -> None:
    stella = signed_in(cast.stella)
    price = {"input_pico": "0.2", "cached_pico": "0.02", "output_pico": "0.8"}
    fields = {"act": "price", "looked": "1", "later": "1", **price}
    more = {"batch_permille": "1", "priority_permille": "1.5", "project": ""}
    # A draft says nothing of when it begins.
    dated = {**fields, **more, "effective_from": "2999-01-01T00:00"}
    refused = stella.post("/catalog/act/small", dated)
    assert refused.status_code == 422 and "takes effect when published" in refused.text
    made = stella.post("/catalog/act/small", {**fields, **more})
    assert made.status_code == 302 and made["Location"] == "/catalog/changes/1", made.content
    store([asked(cast, "small", cost_nano=24_240)])
    shown = text(stella, "/catalog/changes/1/dry-run")
    assert "<dt>Changed</dt><dd>1</dd>" in shown and ">Organizations<" in shown
    draft = text(stella, "/catalog/changes/1")
    assert "input, USD per million tokens: <del>0.10</del> → <ins>0.20</ins>" in draft
    assert "high-priority multiplier: <del>×1</del> → <ins>×1.5</ins>" in draft
    assert stella.post("/catalog/changes/1/shadow", {"revision": 1}).status_code == 404
    stella.post("/catalog/changes/1/publish", {"revision": 1})
    assert PriceChanges(cast.stella).in_force() is not None


def test_who_may_not_set_limits_is_offered_no_draft(cast: Cast) -> None:
    bob = signed_in(cast.bob)
    assert "/limits/changes" not in bob.get("/limits").content.decode()
    assert bob.get("/limits/changes").status_code == 403
