"""C5: the cost of GPUs against revenue, by pool, model and tenant; page, API and file agree."""

from __future__ import annotations

import csv
import io
import json
from datetime import UTC, datetime, timedelta

import pytest
from django.conf import settings
from django.test import Client

from controlplane.billing.ledger.journal import costs_book
from controlplane.core.audit.entries import OPERATOR
from controlplane.fleet.services import node_credential_create
from controlplane.kernel.money import usd_short, usd_text
from tests.support.money import rows
from tests.support.month import ALPHA, BETA, PERIOD, START, Month, seal_month, seed_month
from tests.support.people import make_cast, signed_in

CARD_HOUR_USD = "2.50"
HOURS = 100
HOUR_MS = 3_600_000
COST_NANO = HOURS * 2 * 2_500_000_000


@pytest.fixture
def month(database: str) -> Month:
    """A month of charges, served by a node of two cards that was there for a hundred hours."""
    made = seed_month(make_cast())
    seal_month()
    rows(
        "INSERT INTO node_hours SELECT h, gen_random_uuid(), 'default', 2500000, 2, %s, %s"
        " FROM generate_series(%s::timestamptz, %s::timestamptz, interval '1 hour') AS h",
        *(HOUR_MS, HOUR_MS // 4, START, START + timedelta(hours=HOURS - 1)),
    )
    return made


def test_staff_set_the_price_and_connected_nodes_cost_from_then_on(month: Month) -> None:
    stella = signed_in(month.cast.stella)
    form = {
        "name": "gpu", "task": "generate", "role": "both", "nodes_min": "0",
        "nodes_max": "4", "card_hour_micro": CARD_HOUR_USD, "cards_per_node": "8",
    }  # fmt: skip
    assert stella.post("/fleet/pools", form).status_code == 302
    assert f'value="{CARD_HOUR_USD}"' in stella.get("/fleet").content.decode()
    node = node_credential_create(actor=OPERATOR, name="n1", pool="gpu").credential.node_id
    rows("UPDATE nodes SET last_seen_at = now() - interval '60 seconds' WHERE id = %s", node)
    links = json.dumps([{"node": node.hex, "facts": {"active": 1}}])
    rows("SELECT fleet_links('g1', %s::jsonb, '{}'::jsonb)", links)
    answer = stella.get("/api/billing/margin").json()
    (pool,) = [line for line in answer["pools"] if line["name"] == "gpu"]
    # A minute of eight cards at 2.50 an hour: 33 cents, all of it idle, since nothing was charged.
    assert pool["idle_nano"] >= 333_333_333
    assert pool["margin_nano"] == -pool["cost_nano"]


def test_page_api_and_file_tell_the_same(month: Month) -> None:
    stella = signed_in(month.cast.stella)
    operator = Client(headers={"authorization": f"Bearer {settings.OPERATOR_TOKEN}"})
    told = operator.get("/api/billing/margin", {"month": PERIOD}).json()
    revenue = month.charged(month.cast.acme.id) + month.charged(month.cast.other.id)
    assert told["total"]["revenue_nano"] == revenue
    assert told["total"]["cost_nano"] == COST_NANO
    assert told["total"]["idle_nano"] == COST_NANO * 3 // 4
    assert {line["name"] for line in told["models"]} >= {ALPHA, BETA}
    page = stella.get("/margin", {"month": PERIOD}).content.decode()
    for line in [told["total"], *told["pools"], *told["models"], *told["tenants"]]:
        assert usd_short(line["margin_nano"]) in page
        assert f'title="${usd_text(line["revenue_nano"])}"' in page
    body = stella.get("/margin.csv", {"month": PERIOD}).content.decode()
    lines = {
        (line["kind"], line["name"]): line for line in csv.DictReader(io.StringIO(body, newline=""))
    }
    for kind in ("pool", "model", "tenant"):
        for line in told[f"{kind}s"]:
            found = lines.pop((kind, line["name"]))
            assert found["revenue_usd"] == usd_text(line["revenue_nano"])
            assert found["served_usd"] == usd_text(line["served_nano"])
            assert found["margin_usd"] == usd_text(line["margin_nano"])
    assert lines == {}


def test_a_hosted_model_earns_what_is_left_of_its_purchase_price(month: Month) -> None:
    stella = signed_in(month.cast.stella)
    path = f"/api/catalog/models/{BETA}/purchases"
    rates = {"input_pico": 2_500_000, "cached_pico": 250_000, "output_pico": 10_000_000}
    assert stella.post(path, rates, content_type="application/json").status_code == 201
    rows("UPDATE purchase_prices SET from_day = '2025-10-01'")
    told = stella.get("/api/billing/margin", {"month": PERIOD}).json()
    beta = next(line for line in told["models"] if line["name"] == BETA)
    # It is sold at what it costs; each charge and each day is rounded for itself.
    assert abs(beta["purchase_nano"] - beta["revenue_nano"]) < 1_000
    assert told["total"]["purchase_nano"] == beta["purchase_nano"] > 0
    assert told["total"]["cost_nano"] == COST_NANO + beta["purchase_nano"]
    assert (
        usd_short(beta["purchase_nano"])
        in stella.get("/margin", {"month": PERIOD}).content.decode()
    )
    body = stella.get("/margin.csv", {"month": PERIOD}).content.decode()
    found = {line["name"]: line["purchase_usd"] for line in csv.DictReader(io.StringIO(body))}
    assert found[BETA] == usd_text(beta["purchase_nano"])


def test_the_books_hold_the_same_cost(month: Month) -> None:
    now = datetime(2025, 11, 1, 1, tzinfo=UTC)
    days = -(-HOURS // 24)
    assert costs_book(now) == days
    ((booked, entries),) = rows(
        "SELECT sum(amount)::bigint, count(*) FROM journal_entries"
        " WHERE debit = 'cogs:default' AND credit = 'payable:gpu'"
    )
    assert (booked, entries) == (COST_NANO, days)


@pytest.mark.parametrize("path", ["/margin", "/margin.csv", "/api/billing/margin"])
def test_a_month_that_is_none_is_told(month: Month, path: str) -> None:
    answer = signed_in(month.cast.stella).get(path, {"month": "2025-13"})
    text = answer.content.decode()
    assert answer.status_code == (200 if path == "/margin" else 400)
    assert "month" in text


def test_an_empty_installation_is_told_what_to_do(database: str) -> None:
    cast = make_cast()
    page = signed_in(cast.stella).get("/margin").content.decode()
    assert "Set the cost per GPU-hour" in page and "/fleet" in page
