"""Hours of nodes: what gateways report adds up once, at the price the pool has at that time."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime, timedelta

import pytest

from controlplane.catalog.pools import PoolDraft, pool_set
from controlplane.core.audit.entries import OPERATOR
from controlplane.fleet.hours import pool_days
from controlplane.fleet.services import node_credential_create
from tests.support.money import rows

AGO_S = 60
HOUR_MS = 3_600_000
PRICE_MICRO = 2_500_000


@pytest.fixture
def node(database: str) -> uuid.UUID:
    """A node of two cards at 2.50 USD an hour."""
    price(PRICE_MICRO)
    return node_credential_create(actor=OPERATOR, name="n1", pool="gpu").credential.node_id


def price(micro: int) -> None:
    """Set what a card of the pool costs."""
    draft = PoolDraft(name="gpu", card_hour_micro=micro, cards_per_node=2)
    pool_set(actor=OPERATOR, draft=draft)


def seen_ago(node: uuid.UUID, seconds: int) -> None:
    """As if no gateway had reported for so long."""
    rows(
        "UPDATE nodes SET last_seen_at = now() - %s * interval '1 second' WHERE id = %s",
        seconds,
        node,
    )


def report(node: uuid.UUID, gateway: str = "g1", *, active: int = 0) -> None:
    """One gateway's view."""
    links = json.dumps([{"node": node.hex, "facts": {"active": active}}])
    rows("SELECT fleet_links(%s, %s::jsonb, '{}'::jsonb)", gateway, links)


def summed() -> tuple[int, int]:
    """Milliseconds that the node was there, and busy."""
    found: tuple[int, int] = rows(
        "SELECT coalesce(sum(up_ms), 0)::bigint, coalesce(sum(busy_ms), 0)::bigint FROM node_hours"
    )[0]
    return found


def test_time_between_reports_is_counted_and_the_first_begins_it(node: uuid.UUID) -> None:
    report(node)
    assert summed() == (0, 0)
    seen_ago(node, AGO_S)
    report(node)
    up, busy = summed()
    assert AGO_S * 1000 <= up <= 2 * AGO_S * 1000 and busy == 0


def test_only_one_gateway_counts_it(node: uuid.UUID) -> None:
    seen_ago(node, AGO_S)
    report(node, "g1")
    once = summed()
    report(node, "g2")
    report(node, "g1")
    assert summed() == once != (0, 0)


def test_time_with_requests_under_way_is_busy(node: uuid.UUID) -> None:
    seen_ago(node, AGO_S)
    report(node, active=3)
    up, busy = summed()
    assert up == busy > 0
    seen_ago(node, AGO_S)
    # One gateway sees none, the other still does.
    report(node, "g2", active=0)
    assert summed()[1] > busy


def test_time_away_is_not_counted(node: uuid.UUID) -> None:
    seen_ago(node, 600)
    report(node)
    assert summed() == (0, 0)


def test_a_new_price_counts_from_then_on(node: uuid.UUID) -> None:
    seen_ago(node, AGO_S)
    report(node)
    price(2 * PRICE_MICRO)
    seen_ago(node, AGO_S)
    report(node)
    found = rows("SELECT card_hour_micro, sum(up_ms)::bigint FROM node_hours GROUP BY 1 ORDER BY 1")
    assert [micro for micro, _ in found] == [PRICE_MICRO, 2 * PRICE_MICRO]
    # To the nano-USD: milliseconds times cards times micro-USD an hour.
    exact = sum(2 * micro * up for micro, up in found)
    now = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    days = list(pool_days(start=now - timedelta(hours=2), end=now + timedelta(hours=1)))
    assert abs(sum(day.cost_nano for day in days) - exact / 3_600) <= len(days)


def test_an_hour_of_two_cards_costs_what_it_says(node: uuid.UUID) -> None:
    rows(
        "INSERT INTO node_hours VALUES ('2026-11-01 00:00Z', %s, 'gpu', %s, 2, %s, %s),"
        " ('2026-11-01 23:00Z', %s, 'gpu', %s, 2, %s, 0)",
        *(node, PRICE_MICRO, HOUR_MS, HOUR_MS // 4),
        *(node, PRICE_MICRO, HOUR_MS // 2),
    )
    start = datetime(2026, 11, 1, tzinfo=UTC)
    (day,) = pool_days(start=start, end=start + timedelta(days=1))
    assert (day.cost_nano, day.busy_nano) == (7_500_000_000, 1_250_000_000)
    assert day.idle_nano == 6_250_000_000
    assert (day.nodes, day.card_ms) == (1, 3 * HOUR_MS)
    assert list(pool_days(start=start + timedelta(days=1), end=start + timedelta(days=2))) == []
