"""C10: what a hosted provider's tokens cost, by connection: margin and reconciliation agree."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client

from controlplane.catalog.selectors import model_find
from controlplane.catalog.services import PurchaseDraft, purchase_set
from controlplane.connections.models import Connection, ConnectionModel
from controlplane.core.audit.entries import OPERATOR
from controlplane.kernel.money import NANO_PER_USD, usd_text
from tests.support.hosted import make_connection
from tests.support.money import rows
from tests.support.month import BETA, PERIOD, seal_month, seed_month
from tests.support.people import make_cast, signed_in

BEGUN = datetime(2025, 9, 30, tzinfo=UTC)
RATES = PurchaseDraft(input_pico=2_500_000, cached_pico=250_000, output_pico=10_000_000)
UPSTREAM = "gpt-beta"


@pytest.fixture
def staff(database: str) -> Client:
    """A month of charges, in which a connection has served one of the models."""
    cast = seed_month(make_cast()).cast
    seal_month()
    model = model_find(name=BETA)
    assert model is not None
    ConnectionModel.objects.create(
        connection=make_connection(), model=model, upstream=UPSTREAM, created_at=BEGUN
    )
    purchase_set(actor=OPERATOR, model=model, draft=RATES)
    rows("UPDATE purchase_prices SET from_day = '2025-10-01'")
    return signed_in(cast.stella)


def path(more: str = "") -> str:
    return f"/api/connections/connection_{Connection.objects.earliest('id').id.hex}{more}"


def spend(staff: Client, address: str = "") -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = staff.get(address or path("/spend"), {"month": PERIOD}).json()[
        "data"
    ]
    return lines


def put(staff: Client, *amounts: dict[str, str]) -> int:
    body = {"amounts": amounts}
    return staff.put(path("/amounts"), body, content_type="application/json").status_code


def test_days_add_up_to_the_purchase_cost_of_margin(staff: Client) -> None:
    lines = spend(staff)
    told = staff.get("/api/billing/margin", {"month": PERIOD}).json()
    beta = next(line for line in told["models"] if line["name"] == BETA)
    assert sum(line["ours_nano"] for line in lines) == beta["purchase_nano"] > 0
    assert {line["upstream"] for line in lines} == {UPSTREAM}
    assert all(line["theirs_nano"] is line["difference_nano"] is None for line in lines)


def test_what_the_provider_charges_stands_beside_it(staff: Client) -> None:
    first, *_ = spend(staff)
    entered = {"day": first["day"], "upstream": UPSTREAM}
    assert put(staff, {**entered, "usd": "9"}) == 204
    # Entered again it is replaced.
    assert put(staff, {**entered, "usd": "3.50"}) == 204
    again, *others = spend(staff)
    assert again["theirs_nano"] == 3_500_000_000
    assert again["difference_nano"] == 3_500_000_000 - first["ours_nano"]
    assert all(line["theirs_nano"] is None for line in others)
    page = staff.get(f"{path().removeprefix('/api')}?month={PERIOD}").content.decode()
    assert usd_text(again["difference_nano"]) in page


def test_csv_is_read_or_its_line_is_named(staff: Client) -> None:
    act = f"{path().removeprefix('/api')}/act"

    def enter(csv: str) -> str:
        given = {"act": "amounts", "csv": csv}
        return staff.post(act, given, follow=True).content.decode()

    assert "2 amounts are saved" in enter("day,model,usd\n2025-10-03,gpt-beta,1\n2025-10-04,x,2\n")
    assert "Line 2 must be" in enter("2025-10-03,gpt-beta,1\n03.10.2025,x,2\n")
    assert "no day" in enter("2025-02-30,x,2\n")
    tomorrow = datetime.now(UTC).date() + timedelta(days=1)
    assert "amounts[0].day" in enter(f"{tomorrow},x,2\n")
    for amount in ("-1", "a", "1e9", str(10**9)):
        assert "amounts[0].usd" in enter(f"2025-10-03,x,{amount}\n")
    theirs = sum(line["theirs_nano"] or 0 for line in spend(staff))
    assert theirs == 3 * NANO_PER_USD


def test_a_model_that_moves_counts_for_who_served_it_that_day(staff: Client) -> None:
    whole = spend(staff)
    middle = sorted(line["day"] for line in whole)[len(whole) // 2]
    moved = datetime.fromisoformat(middle).replace(hour=12, tzinfo=UTC)
    old = ConnectionModel.objects.get()
    ConnectionModel.objects.update(withdrawn_at=moved)
    second = make_connection(name="second")
    ConnectionModel.objects.create(
        connection=second, model=old.model, upstream="other-name", created_at=moved
    )
    first = spend(staff)
    rest = spend(staff, f"/api/connections/connection_{second.id.hex}/spend")
    assert max(line["day"] for line in first) < middle == min(line["day"] for line in rest)
    assert {line["upstream"] for line in rest} == {"other-name"}
    sums = [sum(line["ours_nano"] for line in lines) for lines in (whole, first, rest)]
    assert sums[0] == sums[1] + sums[2]
