"""The FOCUS file against the rules of the specification: types, nulls, exactness, corrections."""

from __future__ import annotations

import json
import re
from decimal import Decimal

import pytest

from controlplane.billing.cells import NUMBER, Cell
from controlplane.billing.exports.pages.focus import COLUMNS
from controlplane.kernel.ids import public_id
from tests.support.exports import Rows, month_spec, rows_of, streamed
from tests.support.month import KEY_NAME, PROJECT_NAME, Month, seal_month, seed_month
from tests.support.people import make_cast

# Of FOCUS 1.2, none of which may be null, and those that may.
NEVER_NULL = (
    "BilledCost",
    "BillingAccountId",
    "BillingCurrency",
    "BillingPeriodEnd",
    "BillingPeriodStart",
    "ChargeCategory",
    "ChargePeriodEnd",
    "ChargePeriodStart",
    "ContractedCost",
    "EffectiveCost",
    "HostProviderName",
    "InvoiceIssuerName",
    "ListCost",
    "ProviderName",
    "PublisherName",
    "ServiceCategory",
    "ServiceName",
    "ServiceProviderName",
    "x_AmountNanoUsd",
)
NULLABLE = ("BillingAccountName", "ChargeClass", "ChargeDescription", "PricingQuantity")
PRICED = (
    "ConsumedQuantity",
    "ConsumedUnit",
    "ContractedUnitPrice",
    "ListUnitPrice",
    "PricingCategory",
    "PricingQuantity",
    "PricingUnit",
    "SkuId",
    "SkuMeter",
    "SkuPriceDetails",
    "SkuPriceId",
)
COSTS = ("BilledCost", "ContractedCost", "EffectiveCost", "ListCost")
CATEGORIES = {"Usage", "Purchase", "Tax", "Credit", "Adjustment"}
TIME = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z")


@pytest.fixture
def month(database: str) -> Month:
    made = seed_month(make_cast())
    seal_month()
    return made


@pytest.fixture
def file(month: Month) -> bytes:
    return streamed(month_spec(month.cast.acme.id, "focus"))


@pytest.fixture
def focus(file: bytes) -> Rows:
    return rows_of(file)


def test_the_head_has_what_the_specification_asks_and_marks_our_own() -> None:
    names = [column.name for column in COLUMNS]
    assert len(set(names)) == len(names)
    assert set(NEVER_NULL) | set(NULLABLE) | set(PRICED) <= set(names)
    ours = [name for name in names if name.startswith("x_")]
    assert names[-len(ours) :] == ours
    assert all(re.fullmatch(r"(x_)?[A-Z][A-Za-z]+", name) for name in names)


def test_nulls_are_nothing_and_never_where_they_may_not_be(focus: Rows, file: bytes) -> None:
    assert all(row[name] for row in focus for name in NEVER_NULL)
    assert b',"",' not in file, "an empty text stands for a null"
    for row in focus:
        assert row["ChargeCategory"] in CATEGORIES
        usage = row["ChargeCategory"] == "Usage"
        assert all(bool(row[name]) == usage for name in PRICED)
        assert {row[name] for name in ("RegionId", "RegionName", "Tags", "InvoiceId")} == {""}


def test_numbers_and_times_are_plain(focus: Rows) -> None:
    for column in COLUMNS:
        values = {row[column.name] for row in focus} - {""}
        if column.cell is Cell.NUMBER:
            assert all(NUMBER.fullmatch(value) for value in values), column.name
        if column.cell is Cell.TIME:
            assert all(TIME.fullmatch(value) for value in values), column.name
    assert all("." in row[name] for row in focus for name in COSTS)


def test_unit_price_times_quantity_is_the_cost_exactly(focus: Rows) -> None:
    usage = [row for row in focus if row["ChargeCategory"] == "Usage"]
    assert len(usage) > 100
    for row in usage:
        quantity = Decimal(row["PricingQuantity"])
        assert quantity * Decimal(row["ListUnitPrice"]) == Decimal(row["ListCost"])
        assert quantity * Decimal(row["ContractedUnitPrice"]) == Decimal(row["ContractedCost"])
        assert quantity * 1_000_000 == Decimal(row["ConsumedQuantity"])
        assert len({row[name] for name in COSTS}) == 1
        json.loads(row["SkuPriceDetails"])


def test_rounding_is_a_row_of_its_own(focus: Rows) -> None:
    rounding = [row for row in focus if row["x_TokenType"] == "rounding"]
    assert rounding
    for row in rounding:
        assert row["ChargeCategory"] == "Adjustment" and not row["ChargeClass"]
        assert abs(Decimal(row["BilledCost"])) < Decimal("0.000001")


def test_corrections_name_the_month_that_they_correct(month: Month, focus: Rows) -> None:
    entries = {row["x_EntryId"]: row for row in focus if row["x_EntryId"]}
    told = {public_id("entry", entry.id): entry for entry in month.corrections(month.cast.acme.id)}
    assert set(entries) == set(told)
    for made, row in entries.items():
        entry = told[made]
        assert int(row["x_AmountNanoUsd"]) == entry.owed
        assert Decimal(row["BilledCost"]) * 10**9 == entry.owed
        assert row["BillingPeriodStart"] == "2025-10-01T00:00:00Z"
        of_september = entry.kind == "reversal" and row["ChargePeriodStart"] < "2025-10"
        assert row["ChargeClass"] == ("Correction" if of_september else "")
    classes = [row["ChargeClass"] for row in entries.values()]
    assert classes.count("Correction") == 1
    kinds = {row["x_EntryKind"]: row["ChargeCategory"] for row in entries.values()}
    assert kinds == {"reversal": "Adjustment", "credit": "Credit", "adjustment": "Adjustment"}
    (outage,) = [row for row in entries.values() if "outage" in row["ChargeDescription"]]
    assert outage["BilledCost"] == "-3.200000000000", "a correction stays a number"


def test_free_text_is_inert_unless_raw_and_numbers_are_never_touched(month: Month) -> None:
    acme = month.cast.acme.id
    names = ("x_CredentialName", "SubAccountName", "ChargeDescription")
    guarded, raw = (
        {
            row[name]
            for row in rows_of(streamed(month_spec(acme, "focus", raw=raw)))
            for name in names
        }
        for raw in (False, True)
    )
    assert {f"'{KEY_NAME}", f"'{PROJECT_NAME}", "'=goodwill", "'@search agents"} <= guarded
    assert {KEY_NAME, PROJECT_NAME, "=goodwill", "@search agents"} <= raw
    assert not any(text.startswith(("=", "+", "-", "@")) for text in guarded)
