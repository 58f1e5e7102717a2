"""S4: the worksheet from what was measured: peak, tokens, batching, hours by region, headroom; kept
by quarter, beside what came.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any

import pytest

from controlplane.catalog.pools import PoolDraft, pool_set
from controlplane.core.audit.entries import OPERATOR
from controlplane.fleet.services import node_credential_create
from controlplane.insights.models import WorksheetRevision
from controlplane.insights.revisions import quarters_open
from controlplane.tenants.keys import apikey_create
from tests.browser.history import write_history
from tests.support.money import rows
from tests.support.people import Cast, make_cast, signed_in
from tests.support.rules import make_models

MODEL, POOL = "tiny", "default"
CAPACITY = "/api/insights/capacity"
REVISIONS, JSON = f"{CAPACITY}/revisions", "application/json"
SLOTS, BLOCKS, BLOCK_TOKENS = 8, 512, 16
FACTS = {"takes_jobs": True, "credits": SLOTS, "active": 0, "kv_blocks": BLOCKS}


@pytest.fixture
def cast(database: str) -> Cast:
    """An organization with three hours of traffic; of two ready nodes one serves its model."""
    made = make_cast()
    make_models(MODEL)
    draft = PoolDraft(name=POOL, card_hour_micro=2_500_000, cards_per_node=2)
    pool_set(actor=OPERATOR, draft=draft)
    key = apikey_create(actor=made.alice, project=made.project, label="nightly")
    for name, model in (("node-1", MODEL), ("node-2", "another")):
        node = node_credential_create(actor=OPERATOR, name=name, pool=POOL)
        rows(
            "UPDATE nodes SET state = 'connected', facts = %s WHERE id = %s",
            json.dumps({"block_size": BLOCK_TOKENS, "models": [model]}), node.credential.node_id,
        )  # fmt: skip
        rows(
            "INSERT INTO node_links (node_id, gateway, facts, seen_at)"
            " VALUES (%s, 'g', %s, now() + interval '1 hour')",
            node.credential.node_id, json.dumps(FACTS),
        )  # fmt: skip
    write_history(made, key.key, MODEL)
    return made


def ask(cast: Cast, **query: Any) -> dict[str, Any]:
    """The worksheet of the pool that had traffic."""
    answer = signed_in(cast.stella).get(CAPACITY, {"days": 1, **query})
    assert answer.status_code == 200, answer.content
    (pool,) = (one for one in answer.json()["data"] if one["pool"] == POOL)
    return dict(pool)


def test_it_is_filled_in_from_what_was_measured(cast: Cast) -> None:
    told = ask(cast)
    ((count, served, prompt, cached, output),) = rows(
        "SELECT count(*), count(*) FILTER (WHERE prompt_tokens > 0), sum(prompt_tokens)::float8,"
        " sum(cached_tokens)::float8, sum(output_tokens)::float8 FROM request_records"
    )
    ((asked, ran),) = rows(
        "SELECT max(n)::float8, max(ran)::float8 FROM (SELECT count(*) AS n,"
        " count(*) FILTER (WHERE prompt_tokens > 0) AS ran FROM request_records"
        " GROUP BY date_trunc('minute', started_at)) AS minutes"
    )
    fields, sheet = told["fields"], told["sheet"]
    assert (told["requests"], told["nodes_ready"]) == (count, 1)
    assert fields["in"] == pytest.approx(prompt / served)
    assert fields["out"] == pytest.approx(output / served)
    assert fields["cached"] == pytest.approx(100 * cached / prompt)
    # What is refused asks for room, and takes none.
    assert count > served > 0
    assert fields["rate"] == pytest.approx(ran / 60)
    assert told["asked_per_s"] == pytest.approx(asked / 60)
    assert (fields["batch"], fields["nodes"]) == (1.0, 1.0)
    used = {use["resource"]: use["used"] for use in sheet["uses"]}
    assert sheet["at_once"] == pytest.approx(fields["rate"] * sheet["seconds"])
    assert used["compute"] == pytest.approx(sheet["at_once"])
    assert used["slots"] == pytest.approx(sheet["at_once"] / SLOTS)
    kv_tokens = BLOCKS * BLOCK_TOKENS
    whole = fields["in"] + fields["out"]
    assert used["kv_cache"] == pytest.approx(sheet["at_once"] * whole / kv_tokens)
    # Two cards on each node, all day.
    assert sheet["gpu_hours_day"] == sheet["nodes_needed"] * 48


def test_what_if_moves_what_breaks_first(cast: Cast) -> None:
    crowded = ask(cast, rate=1_000, batch=4, nodes=3)["sheet"]
    assert crowded["uses"][0]["resource"] == "compute" and crowded["uses"][0]["used"] > 1
    assert crowded["per_s_max"] < 1_000 < crowded["nodes_needed"] * 1_000
    batched = ask(cast, rate=1_000, batch=64, nodes=3)["sheet"]
    assert batched["uses"][0]["resource"] != "compute"
    assert batched["nodes_needed"] < crowded["nodes_needed"]
    wrong = signed_in(cast.stella).get(CAPACITY, {"cached": "101"})
    assert wrong.status_code == 400 and "cached" in wrong.json()["error"]["fields"]


def test_the_page_shows_the_same_and_keeps_the_question_in_its_address(cast: Cast) -> None:
    client = signed_in(cast.stella)
    page = client.get("/insights/capacity", {"days": 1, "rate": 1_000, "nodes": 3})
    text = page.content.decode()
    assert page.status_code == 200 and ">bottleneck<" in text and "no price" not in text
    assert re.search('<input [^>]*name="rate"[^>]* value="1000"', text)
    told = client.get("/insights/capacity.csv", {"days": 1, "rate": 1_000, "nodes": 3})
    lines = dict(line.split(",")[1:] for line in told.content.decode().splitlines())
    pool = ask(cast, rate=1_000, nodes=3)
    sheet = pool["sheet"]
    assert "requests/s arrived" in text
    assert float(lines["asked_per_s"]) == pytest.approx(pool["asked_per_s"], rel=1e-4)
    assert lines["nodes_needed"] == str(sheet["nodes_needed"])
    assert float(lines["used_compute"]) == pytest.approx(
        next(use["used"] for use in sheet["uses"] if use["resource"] == "compute"), rel=1e-4
    )
    assert signed_in(cast.alice).get("/insights/capacity").status_code == 403


def test_a_pool_without_traffic_says_what_to_do(database: str) -> None:
    cast = make_cast()
    make_models(MODEL)
    assert ask(cast)["sheet"] is None
    page = signed_in(cast.stella).get("/insights/capacity")
    assert "No measurements" in page.content.decode()


def test_a_worksheet_is_kept_for_a_quarter_and_compared_with_what_came(cast: Cast) -> None:
    stella = signed_in(cast.stella)
    quarter = quarters_open(datetime.now(UTC))[0]
    body = {"pool": POOL, "quarter": quarter, "note": "after the sale", "days": 1}
    figures = {"rate": 40.0, "cached": 50.0, "nodes": 2.0}
    made = stella.post(REVISIONS, body | {"figures": figures}, content_type=JSON)
    assert made.status_code == 201, made.content
    kept = made.json()
    assert (kept["by"], kept["quarter"]) == (cast.stella.email, quarter)
    assert kept["figures"] | figures == kept["figures"]
    first = kept["sheet"]["uses"][0]
    assert (
        first["used"]
        == pytest.approx(40 / first["per_s_max"])
        == pytest.approx(40 / kept["sheet"]["per_s_max"])
    )
    # Another revision of the quarter stands beside it; neither is ever changed.
    again = stella.post(REVISIONS, body, content_type=JSON).json()
    listed = stella.get(REVISIONS, {"pool": POOL}).json()["data"]
    assert [one["id"] for one in listed] == [again["id"], kept["id"]]
    assert listed[1] == kept

    told = stella.get(f"{REVISIONS}/{kept['id']}").json()
    compared = {one["name"]: (one["kept"], one["came"]) for one in told["compared"]}
    asked = ask(cast)["fields"]
    assert compared["rate"][0] == 40.0 and 0 < compared["rate"][1] < 40.0
    assert compared["in"] == (pytest.approx(asked["in"]), pytest.approx(asked["in"]))
    assert compared["nodes"] == (2.0, None)
    page = stella.get(f"/insights/capacity/{kept['id']}").content.decode()
    assert "after the sale" in page and "Forecast" in page
    sheet = stella.get("/insights/capacity", {"days": 1}).content.decode()
    assert f"/insights/capacity/{kept['id']}" in sheet
    posted = stella.post("/insights/capacity/keep", {"pool": POOL, "days": 1, "quarter": quarter})
    assert posted.status_code == 302 and "capacity/worksheet_" in posted["location"]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"quarter": "2001-Q1"}, "quarter"),
        ({"quarter": "Q1"}, "quarter"),
        ({"pool": "none"}, "pool"),
        ({"note": "a\nb"}, "note"),
        ({"days": 0}, "days"),
        ({"figures": {"speed": 1.0}}, "speed"),
        ({"figures": {"cached": 101.0}}, "cached"),
    ],
)
def test_what_cannot_be_kept_is_told_at_its_field(
    cast: Cast, changes: dict[str, Any], field: str
) -> None:
    quarter = quarters_open(datetime.now(UTC))[0]
    body = {"pool": POOL, "quarter": quarter, "days": 1} | changes
    answer = signed_in(cast.stella).post(REVISIONS, body, content_type=JSON)
    assert answer.status_code == 400 and set(answer.json()["error"]["fields"]) == {field}
    assert not WorksheetRevision.objects.exists()


def test_slower_batches_and_cold_starts_are_in_the_model(cast: Cast) -> None:
    plain = ask(cast, rate=1_000, rise=0, cold=0)["sheet"]
    assert plain["nodes_spare"] == 0
    rising = ask(cast, rate=1_000, rise=60, cold=120)["sheet"]
    # What comes in two minutes, at a request a second more each second.
    assert rising["nodes_needed"] == pytest.approx(1.12 * plain["nodes_needed"], abs=1)
    assert rising["nodes_spare"] == rising["nodes_needed"] - plain["nodes_needed"]
