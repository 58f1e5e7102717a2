"""Cost of GPUs spread to the last nano-USD, and booked once for each day and pool."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta

import pytest
from django.core.exceptions import PermissionDenied
from hypothesis import given
from hypothesis import strategies as st

from controlplane.billing.accounts import PAYABLE_GPU, PLATFORM
from controlplane.billing.costs import GRACE, costs_book
from controlplane.billing.margin import OUTPUT_WEIGHT, Margin, divided, margin_read
from controlplane.billing.tasks import book_costs
from controlplane.catalog.pools import PoolDraft, pool_set
from controlplane.core.audit import OPERATOR
from controlplane.kernel.histogram import Histogram
from tests.support.money import rows
from tests.support.month import ALPHA, BETA, END, START, Month, seal_month, seed_month
from tests.support.people import make_cast

HOUR_MS = 3_600_000
NODE, SPARE = uuid.UUID(int=1), uuid.UUID(int=2)
# 2.50 USD a card and hour, two cards: 5 USD an hour of a node.
PRICE_MICRO, CARDS = 2_500_000, 2
NODE_HOUR_NANO = 5_000_000_000
INSERT = "INSERT INTO node_hours VALUES (%s, %s, %s, %s, %s, %s, %s)"


@pytest.fixture
def month(database: str) -> Month:
    """October on the ledger, sealed."""
    made = seed_month(make_cast())
    seal_month()
    return made


def was_there(node: uuid.UUID, hour: datetime, *, pool: str = "default", busy_ms: int = 0) -> None:
    """A node for an hour."""
    rows(INSERT, hour, node, pool, PRICE_MICRO, CARDS, HOUR_MS, busy_ms)


def phases(model: str, prefill_us: int, decode_us: int) -> None:
    """What telemetry has measured on the first of October."""
    for measure, total in (("prefill", prefill_us), ("decode", decode_us)):
        histogram = Histogram()
        histogram.record(total)
        rows(
            "INSERT INTO histogram_rollups (step_s, at, organization, project, measure, model,"
            " route, prompt_bucket, status_class, data)"
            " VALUES (86400, %s, %s, %s, %s, %s, '', -1, -1, %s)",
            *(START, PLATFORM, PLATFORM, measure, model, histogram.to_bytes()),
        )


def october(month: Month) -> Margin:
    """As staff sees it."""
    return margin_read(actor=month.cast.stella, start=START, end=END)


def test_revenue_is_what_the_ledger_charged(month: Month) -> None:
    found = october(month)
    acme, other = month.cast.acme.id, month.cast.other.id
    charged = {str(one): month.charged(one) for one in (acme, other)}
    assert {line.id: line.revenue_nano for line in found.tenants} == charged
    for lines in (found.pools, found.models):
        assert sum(line.revenue_nano for line in lines) == sum(charged.values())
    # Nobody has said what a card costs.
    assert found.total.margin_nano == sum(charged.values())


def test_every_nano_of_cost_is_in_one_place(month: Month) -> None:
    for hour in range(7):
        was_there(NODE, START + timedelta(hours=hour), busy_ms=1_234_567)
    was_there(SPARE, START)
    found = october(month)
    total = found.total
    assert total.cost_nano == 8 * NODE_HOUR_NANO
    # Each day is rounded once; these hours are of one.
    assert total.served_nano == (7 * 1_234_567 * CARDS * PRICE_MICRO + 1_800) // 3_600
    assert total.idle_nano == total.cost_nano - total.served_nano
    for lines in (found.models, found.tenants):
        assert sum(line.served_nano for line in lines) == total.served_nano
        assert not any(line.idle_nano for line in lines)
    assert total.up_ms == 8 * HOUR_MS and total.card_ms == 16 * HOUR_MS


def test_without_measurements_tokens_decide(month: Month) -> None:
    was_there(NODE, START, busy_ms=HOUR_MS)
    found = october(month)
    assert found.measured == frozenset()
    weights = {line.name: line.uncached + OUTPUT_WEIGHT * line.output for line in found.models}
    for line in found.models:
        exact = NODE_HOUR_NANO * weights[line.name] / sum(weights.values())
        # A nano for each tenant's share.
        assert abs(line.served_nano - exact) <= 2
    assert all(line.served_nano for line in found.tenants)


def test_measured_phases_decide_between_models_and_tokens_between_tenants(month: Month) -> None:
    was_there(NODE, START, busy_ms=HOUR_MS)
    phases(ALPHA, 1_000_000, 3_000_000)
    phases(BETA, 2_000_000, 14_000_000)
    found = october(month)
    assert found.measured == {"default"}
    models = {line.name: line for line in found.models}
    assert abs(models[ALPHA].served_nano - NODE_HOUR_NANO // 5) < 5_000
    assert abs(models[BETA].served_nano - 4 * NODE_HOUR_NANO // 5) < 5_000
    assert sum(line.served_nano for line in found.models) == NODE_HOUR_NANO


def test_one_model_unmeasured_lets_tokens_decide_in_its_pool(month: Month) -> None:
    was_there(NODE, START, busy_ms=HOUR_MS)
    phases(ALPHA, 1_000_000, 3_000_000)
    assert october(month).measured == frozenset()


def test_busy_time_of_a_pool_that_charged_nothing_is_idle(month: Month) -> None:
    pool_set(actor=OPERATOR, draft=PoolDraft(name="night"))
    was_there(NODE, START, pool="night", busy_ms=HOUR_MS)
    lines = {line.name: line for line in october(month).pools}
    assert (lines["night"].served_nano, lines["night"].idle_nano) == (0, NODE_HOUR_NANO)


def test_other_months_do_not_count(month: Month) -> None:
    was_there(NODE, START - timedelta(hours=1))
    was_there(NODE, END)
    assert october(month).total.cost_nano == 0


def test_margin_is_for_staff(month: Month) -> None:
    for user in (month.cast.alice, month.cast.bob, month.cast.charlie):
        with pytest.raises(PermissionDenied):
            margin_read(actor=user, start=START, end=END)


def booked() -> list[tuple[str, str, int, str]]:
    """What is on the books of it."""
    return rows(
        "SELECT debit, credit, amount, idempotency FROM journal_entries WHERE kind = 'cogs'"
        " ORDER BY idempotency"
    )


def test_each_ended_day_and_pool_is_booked_once(database: str) -> None:
    make_cast()
    pool_set(actor=OPERATOR, draft=PoolDraft(name="night"))
    now = datetime(2026, 11, 3, 0, 10, tzinfo=UTC)
    was_there(NODE, now.replace(day=1, hour=23, minute=0))
    was_there(NODE, now.replace(day=2, hour=0, minute=0))
    was_there(SPARE, now.replace(day=2, hour=5, minute=0), pool="night")
    # The day that has just begun.
    was_there(NODE, now.replace(hour=0, minute=0))
    assert costs_book(now - GRACE) == 1
    assert costs_book(now) == 2
    assert costs_book(now) == 0
    assert booked() == [
        ("cogs:default", PAYABLE_GPU, NODE_HOUR_NANO, "cogs:default:2026-11-01"),
        ("cogs:default", PAYABLE_GPU, NODE_HOUR_NANO, "cogs:default:2026-11-02"),
        ("cogs:night", PAYABLE_GPU, NODE_HOUR_NANO, "cogs:night:2026-11-02"),
    ]


def test_the_job_books_nothing_where_nothing_costs(database: str) -> None:
    yesterday = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(days=1)
    rows(INSERT, yesterday, NODE, "default", 0, 1, HOUR_MS, 0)
    assert book_costs() == 0
    assert booked() == []


@given(
    amount=st.integers(0, 10**15),
    weights=st.lists(st.integers(0, 10**12), min_size=1, max_size=20),
)
def test_an_amount_is_divided_without_rest(amount: int, weights: list[int]) -> None:
    given_weights = {(uuid.UUID(int=place), "m"): weight for place, weight in enumerate(weights)}
    parts = divided(amount, given_weights)
    assert sum(parts.values()) == (amount if any(weights) else 0)
    for place, part in parts.items():
        assert abs(part - amount * given_weights[place] / sum(weights)) <= 1 + amount / 2**50
