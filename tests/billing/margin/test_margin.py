"""Cost of GPUs spread to the last nano-USD, and booked once for each day and pool."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta

import pytest
from django.core.exceptions import PermissionDenied, ValidationError
from hypothesis import given
from hypothesis import strategies as st

from controlplane.billing.ledger.accounts import PAYABLE_GPU, PLATFORM
from controlplane.billing.ledger.journal import GRACE, costs_book
from controlplane.billing.margin.selectors import OUTPUT_WEIGHT, Margin, divided, margin_read, split
from controlplane.catalog.models import Model
from controlplane.catalog.pools import PoolDraft, pool_set
from controlplane.catalog.services import PurchaseDraft, purchase_set
from controlplane.core.audit.entries import OPERATOR
from controlplane.kernel.histogram import Histogram
from controlplane.kernel.ids import public_id
from controlplane.kernel.price import RATE_PICO_MAX
from tests.support.money import rows
from tests.support.month import ALPHA, BETA, DEARER, END, START, Month, seal_month, seed_month
from tests.support.people import make_cast, signed_in

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
            " VALUES (86400, %s, %s, %s, %s, %s, '', -1, -1, %s) ON CONFLICT DO NOTHING",
            *(START, PLATFORM, PLATFORM, measure, model, histogram.to_bytes()),
        )


def served(organization: uuid.UUID, model: str, pool: str, nano: int, output: int) -> None:
    """What telemetry has counted on the first of October."""
    phases(model, 1, 1)
    rows(
        "INSERT INTO usage_rollups (step_s, at, organization, project, key, model, route, pool,"
        " requests, errors, uncached, cached, output, nano)"
        " VALUES (86400, %s, %s, %s, %s, %s, 'night', %s, 1, 0, 0, 0, %s, %s)",
        *(START, organization, PLATFORM, PLATFORM, model, pool, output, nano),
    )


def october(month: Month) -> Margin:
    """As staff sees it."""
    return margin_read(actor=month.cast.stella, start=START, end=END)


def test_revenue_is_what_the_ledger_charged(month: Month) -> None:
    found = october(month)
    acme, other = month.cast.acme.id, month.cast.other.id
    charged = {public_id("org", one): month.charged(one) for one in (acme, other)}
    assert {line.id: line.revenue_nano for line in found.tenants} == charged
    for lines in (found.pools, found.models):
        assert sum(line.revenue_nano for line in lines) == sum(charged.values())
    # Nobody has said what a card costs.
    assert found.total.margin_nano == sum(charged.values())


def test_revenue_is_of_the_pool_that_served_and_the_rest_of_the_model_s_own(month: Month) -> None:
    pool_set(actor=OPERATOR, draft=PoolDraft(name="night"))
    acme = month.cast.acme.id
    before = october(month)
    served(acme, ALPHA, "night", nano=1_000_001, output=77)
    served(acme, ALPHA, "default", nano=5, output=1)
    served(acme, BETA, "gone", nano=9, output=2)
    # What no pool served, like a refusal, and models of nobody's ledger change nothing.
    served(acme, ALPHA, "", nano=0, output=0)
    served(acme, "other", "night", nano=8, output=8)
    found = october(month)
    pools = {line.name: line for line in found.pools}
    assert (pools["night"].revenue_nano, pools["night"].output) == (1_000_001, 77)
    assert (pools["gone"].revenue_nano, pools["gone"].output) == (9, 2)
    assert pools["default"].revenue_nano == before.total.revenue_nano - 1_000_010
    assert sum(line.tokens for line in found.pools) == sum(line.tokens for line in before.pools)
    assert (found.models, found.tenants) == (before.models, before.tenants)


def test_telemetry_that_claims_more_than_the_ledger_only_splits_it(month: Month) -> None:
    acme = month.cast.acme.id
    charged = month.sums(acme, lambda line: line.model)[ALPHA]
    served(acme, ALPHA, "night", nano=3 * charged, output=0)
    served(acme, ALPHA, "default", nano=charged, output=0)
    found = october(month)
    pools = {line.name: line.revenue_nano for line in found.pools}
    assert abs(pools["night"] - charged * 3 / 4) <= 1
    assert sum(pools.values()) == charged + sum(
        line.revenue_nano for line in found.models if line.name == BETA
    ) + sum(line.amount for line in month.posted(month.cast.other.id) if line.model == ALPHA)


def test_busy_time_is_of_what_was_served_in_the_pool(month: Month) -> None:
    pool_set(actor=OPERATOR, draft=PoolDraft(name="night"))
    was_there(NODE, START, busy_ms=HOUR_MS)
    was_there(SPARE, START, pool="night", busy_ms=HOUR_MS)
    served(month.cast.acme.id, ALPHA, "night", nano=1_000, output=50)
    found = october(month)
    lines = {line.name: line for line in found.pools}
    assert (lines["night"].served_nano, lines["night"].idle_nano) == (NODE_HOUR_NANO, 0)
    for told in (found.models, found.tenants):
        assert sum(line.served_nano for line in told) == 2 * NODE_HOUR_NANO
    alpha = next(line for line in found.models if line.name == ALPHA)
    assert alpha.served_nano > NODE_HOUR_NANO


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


def test_bought_tokens_cost_the_price_of_their_day(month: Month) -> None:
    model = Model.objects.get(name=BETA)
    sold = PurchaseDraft(input_pico=2_000_000, cached_pico=200_000, output_pico=8_000_000)
    dearer = PurchaseDraft(input_pico=3_000_000, cached_pico=300_000, output_pico=9_000_000)
    for draft, day in ((sold, START), (dearer, DEARER)):
        made = purchase_set(actor=OPERATOR, model=model, draft=draft)
        rows("UPDATE purchase_prices SET from_day = %s WHERE id = %s", day.date(), made.id)
    found = october(month)
    exact = 0
    for organization in (month.cast.acme.id, month.cast.other.id):
        for line in month.posted(organization):
            if line.model == BETA:
                rates = dearer if line.booked_at >= DEARER else sold
                exact += (
                    line.counts.uncached * rates.input_pico
                    + line.counts.cached * rates.cached_pico
                    + line.counts.output * rates.output_pico
                )
    models = {line.name: line for line in found.models}
    # Half a nano for each of 31 days and two tenants.
    assert abs(models[BETA].purchase_nano * 1_000 - exact) <= 62 * 500
    assert models[ALPHA].purchase_nano == 0
    for lines in (found.pools, found.tenants):
        assert sum(line.purchase_nano for line in lines) == models[BETA].purchase_nano
    assert models[BETA].margin_nano == models[BETA].revenue_nano - models[BETA].purchase_nano
    assert found.total.cost_nano == models[BETA].purchase_nano > 0


@pytest.mark.parametrize(
    ("field", "rates"),
    [
        ("input_pico", (-1, 0, 0)),
        ("output_pico", (0, 0, RATE_PICO_MAX + 1)),
        ("cached_pico", (1, 2, 0)),
    ],
)
def test_purchase_prices_out_of_bounds_name_their_field(
    month: Month, field: str, rates: tuple[int, int, int]
) -> None:
    model = Model.objects.get(name=BETA)
    draft = PurchaseDraft(input_pico=rates[0], cached_pico=rates[1], output_pico=rates[2])
    with pytest.raises(ValidationError) as raised:
        purchase_set(actor=OPERATOR, model=model, draft=draft)
    assert list(raised.value.message_dict) == [field]
    with pytest.raises(PermissionDenied):
        purchase_set(actor=month.cast.alice, model=model, draft=draft)


def test_the_api_sets_and_lists_purchase_prices(month: Month) -> None:
    client = signed_in(month.cast.stella)
    path = f"/api/catalog/models/{BETA}/purchases"
    body = {"input_pico": 5, "cached_pico": 1, "output_pico": 7}
    made = client.post(path, body, content_type="application/json")
    assert made.status_code == 201, made.content
    (listed,) = client.get(path).json()["data"]
    assert listed == made.json()
    assert {name: listed[name] for name in body} == body
    assert (
        client.get(f"/api/billing/margin?month={START:%Y-%m}").json()["total"]["purchase_nano"] == 0
    )


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
    assert costs_book() == 0
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


@given(
    amount=st.integers(0, 10**15),
    recorded=st.dictionaries(st.sampled_from("abcde"), st.integers(0, 10**15)),
)
def test_a_split_adds_up_to_what_was_booked(amount: int, recorded: dict[str, int]) -> None:
    parts = split(amount, recorded, "a")
    assert sum(parts.values()) == amount
    assert all(part >= 0 for part in parts.values())
