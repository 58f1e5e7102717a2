"""/v1/organization/: the ledger's own sums in OpenAI's shapes, page by page, and errors by name."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from django.conf import settings
from django.test import Client

from controlplane.kernel.ids import public_id
from controlplane.tenants.adminkeys.services import AdminKeyDraft, adminkey_create
from controlplane.tenants.keys import apikey_create
from tests.support.money import rows
from tests.support.month import ALPHA, BETA, END, START, Month, seal_month, seed_month
from tests.support.people import Cast, make_cast, signed_in

FROM, TO = int(START.timestamp()), int(END.timestamp())
DAY_S, HOUR_S = 86_400, 3_600
WHOLE = {"start_time": FROM, "end_time": TO}


@pytest.fixture
def cast(database: str) -> Cast:
    return make_cast()


@pytest.fixture
def month(cast: Cast) -> Month:
    found = seed_month(cast)
    seal_month()
    return found


@pytest.fixture
def program(cast: Cast) -> Client:
    """Holds an admin key of Acme's that sees everything of it."""
    actions = ("ledger.view", "request.view", "key.view", "audit.view")
    made = adminkey_create(
        actor=cast.alice, organization_id=cast.acme.id, draft=AdminKeyDraft("all", actions)
    )
    return Client(headers={"Authorization": f"Bearer {made.secret}"})


def ask(client: Client, path: str, **params: Any) -> Any:
    answer = client.get(f"/v1/organization/{path}", params)
    assert answer.status_code == 200, answer.content
    return answer.json()


def results(client: Client, path: str, **params: Any) -> list[dict[str, Any]]:
    """All results of all pages."""
    found: list[dict[str, Any]] = []
    page: dict[str, str] = {}
    for _ in range(1_000):
        told = ask(client, path, **params, **page)
        assert told["object"] == "page" and all(b["object"] == "bucket" for b in told["data"])
        found += [one for bucket in told["data"] for one in bucket["results"]]
        if not told["has_more"]:
            assert told["next_page"] is None
            return found
        page = {"page": told["next_page"]}
    raise AssertionError("no end of pages")


def nano(found: list[dict[str, Any]]) -> int:
    return sum(one["amount"]["nano_usd"] for one in found)


def test_costs_are_what_the_ledger_charged(month: Month, program: Client) -> None:
    acme = month.cast.acme.id
    found = results(program, "costs", **WHOLE)
    assert nano(found) == month.charged(acme) > 0
    assert all(round(o["amount"]["value"] * 10**9) == o["amount"]["nano_usd"] for o in found)
    by_model = Counter[str]()
    for one in results(program, "costs", **WHOLE, group_by="line_item", limit=180):
        by_model[one["line_item"]] += one["amount"]["nano_usd"]
    assert by_model == month.sums(acme, lambda line: line.model)
    by_key = Counter[str]()
    for one in results(program, "costs", **WHOLE, **{"group_by[]": ["api_key_id", "project_id"]}):
        by_key[one["api_key_id"]] += one["amount"]["nano_usd"]
    assert by_key == month.sums(acme, lambda line: public_id("key", line.key))


def test_days_and_pages(month: Month, program: Client) -> None:
    first = ask(program, "costs", **WHOLE, limit=5)
    starts = [bucket["start_time"] for bucket in first["data"]]
    assert starts == [FROM + n * DAY_S for n in range(5)] and first["has_more"] is True
    assert all(bucket["end_time"] == bucket["start_time"] + DAY_S for bucket in first["data"])
    second = ask(program, "costs", **WHOLE, limit=5, page=first["next_page"])
    assert second["data"][0]["start_time"] == FROM + 5 * DAY_S
    by_day = month.sums(month.cast.acme.id, lambda line: line.booked_at.date())
    charged = [sum(o["amount"]["nano_usd"] for o in b["results"]) for b in first["data"]]
    assert charged == [by_day[day] for day in sorted(by_day)[:5]]
    assert first["sealed_through"] >= TO


@pytest.mark.parametrize("width", ["1h", "1d"])
def test_usage_counts_the_ledgers_tokens(month: Month, program: Client, width: str) -> None:
    lines = month.posted(month.cast.acme.id)
    found = results(program, "usage/completions", **WHOLE, bucket_width=width, limit=31)
    assert sum(one["output_tokens"] for one in found) == sum(x.counts.output for x in lines)
    assert sum(one["input_cached_tokens"] for one in found) == sum(x.counts.cached for x in lines)
    assert sum(one["input_tokens"] for one in found) == sum(
        x.counts.cached + x.counts.uncached for x in lines
    )
    assert found[0]["object"] == "organization.usage.completions.result"


def test_groups_and_filters(month: Month, program: Client) -> None:
    lines = month.posted(month.cast.acme.id)
    alone = results(program, "usage/completions", **WHOLE, models=ALPHA, group_by="model")
    assert {one["model"] for one in alone} == {ALPHA}
    wanted = sum(x.counts.output for x in lines if x.model == ALPHA)
    assert sum(one["output_tokens"] for one in alone) == wanted > 0
    project = month.payers[0].project.id
    of_project = results(program, "costs", **WHOLE, project_ids=str(project))
    assert nano(of_project) == month.sums(month.cast.acme.id, lambda x: x.project)[project]
    assert results(program, "costs", **WHOLE, project_ids=str(month.cast.other_project.id)) == []


def test_embedders_are_apart(month: Month, program: Client) -> None:
    rows(
        "UPDATE models SET task = 'embed', output_tokens_default = 0, output_tokens_max = 0"
        " WHERE name = %s",
        BETA,
    )
    lines = month.posted(month.cast.acme.id)
    for path, model in (("usage/embeddings", BETA), ("usage/completions", ALPHA)):
        found = results(program, path, **WHOLE)
        wanted = sum(x.counts.cached + x.counts.uncached for x in lines if x.model == model)
        assert sum(one["input_tokens"] for one in found) == wanted > 0


@pytest.mark.parametrize(
    ("params", "name"),
    [
        ({}, "start_time"),
        ({"start_time": "x"}, "start_time"),
        ({"start_time": "-1"}, "start_time"),
        ({"start_time": 0, "end_time": "9" * 30}, "end_time"),
        ({"start_time": 0, "bucket_width": "1m"}, "bucket_width"),
        ({"start_time": 0, "group_by": "batch"}, "group_by"),
        ({"start_time": 0, "limit": 0}, "limit"),
        ({"start_time": 0, "limit": 181}, "limit"),
        ({"start_time": 0, "page": "x"}, "page"),
        ({"start_time": 0, "page": "page_é"}, "page"),
        ({"start_time": 0, "project_ids": "x"}, "project_ids"),
        ({"start_time": 0, "models": ["m"] * 101}, "models"),
        ({"start_time": [0, 1]}, "start_time"),
        ({"start_time": 0, "buckets": 1}, "buckets"),
    ],
)
def test_a_bad_parameter_is_named(program: Client, params: Any, name: str) -> None:
    answer = program.get("/v1/organization/costs", params)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert list(error) == ["message", "type", "param", "code", "fields"]
    assert error["param"] == name and error["message"].startswith(f"{name}: ")


def test_projects_keys_and_changes(cast: Cast, program: Client) -> None:
    key = apikey_create(actor=cast.bob, project=cast.project, label="night").key
    (project,) = ask(program, "projects")["data"]
    assert (project["id"], project["name"]) == (public_id("proj", cast.project.id), "web")
    assert ask(program, f"projects/{cast.project.id}") == project
    (told,) = ask(program, f"projects/{cast.project.id}/api_keys")["data"]
    assert (told["id"], told["redacted_value"]) == (public_id("key", key.id), key.redacted)
    assert told["owner"]["user"]["email"] == "bob@example.org" and told["last_used_at"] is None
    logs = ask(program, "audit_logs", limit=1, event_types="apikey.create")
    assert [one["subject"]["id"] for one in logs["data"]] == [public_id("key", key.id)]
    assert ask(program, "audit_logs", **{"effective_at[lt]": 1})["data"] == []
    theirs = program.get(f"/v1/organization/projects/{cast.other_project.id}/api_keys")
    assert theirs.status_code == 404


def test_whose_figures(cast: Cast, program: Client) -> None:
    assert Client().get("/v1/organization/projects").status_code == 401
    inference = apikey_create(actor=cast.bob, project=cast.project, label="i").secret
    refused = Client().get(
        "/v1/organization/projects", headers={"Authorization": f"Bearer {inference}"}
    )
    assert (refused.status_code, refused.json()["error"]["code"]) == (401, "invalid_api_key")
    assert signed_in(cast.bob).get("/v1/organization/costs?start_time=0").status_code == 403
    assert len(ask(signed_in(cast.bob), "projects")["data"]) == 1
    operator = Client(headers={"Authorization": f"Bearer {settings.OPERATOR_TOKEN}"})
    unsaid = operator.get("/v1/organization/projects")
    assert unsaid.json()["error"]["param"] == "OpenAI-Organization"
    said = operator.get(
        "/v1/organization/projects", headers={"OpenAI-Organization": str(cast.other.id)}
    )
    assert [one["name"] for one in said.json()["data"]] == ["secret"]
    foreign = program.get(
        "/v1/organization/projects", headers={"OpenAI-Organization": str(cast.other.id)}
    )
    assert foreign.status_code == 404
