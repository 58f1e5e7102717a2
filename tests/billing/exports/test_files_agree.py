"""Every kind of file sums to the ledger, to the nano-USD, whichever way it is cut."""

from __future__ import annotations

import hashlib
import uuid
from collections import Counter
from decimal import Decimal

import pytest

from controlplane.billing.exports.models import ExportState
from controlplane.kernel.ids import public_id
from tests.support.exports import made_by_job, month_spec, nano_of, rows_of, streamed
from tests.support.month import Line, Month, seal_month, seed_month
from tests.support.people import make_cast

EVERY = [
    ("usage", "day"),
    ("usage", "hour"),
    ("detail", "entry"),
    ("focus", "day"),
    ("focus", "hour"),
    ("journal", "day"),
    ("journal", "entry"),
]
NANO = Decimal("0.000000001")


@pytest.fixture
def month(database: str) -> Month:
    made = seed_month(make_cast())
    seal_month()
    return made


def _organizations(month: Month) -> list[uuid.UUID]:
    return [month.cast.acme.id, month.cast.other.id]


@pytest.mark.parametrize("grain", ["day", "hour"])
def test_usage_sums_to_the_ledger(month: Month, grain: str) -> None:
    for one in _organizations(month):
        rows = rows_of(streamed(month_spec(one, "usage", grain=grain)))
        assert nano_of(rows) == month.charged(one)
        assert sum(Decimal(row["cost_usd"]) for row in rows) == month.charged(one) * NANO
        by_key: Counter[str] = Counter()
        for row in rows:
            by_key[row["key_id"]] += int(row["amount_nano_usd"])
        assert by_key == month.sums(one, lambda line: public_id("key", line.key))
        requests = sum(int(row["requests"]) for row in rows)
        assert requests == sum(line.kind != "overage" for line in month.posted(one))


def test_detail_has_every_charged_line_once(month: Month) -> None:
    for one in _organizations(month):
        rows = rows_of(streamed(month_spec(one, "detail")))
        assert nano_of(rows) == month.charged(one)
        found = [(row["request_id"], int(row["line"]), int(row["amount_nano_usd"])) for row in rows]
        told = [
            (public_id("req", line.request), line.slot, line.amount) for line in month.posted(one)
        ]
        assert found == sorted(told)


@pytest.mark.parametrize("grain", ["day", "hour"])
def test_focus_sums_to_what_is_owed(month: Month, grain: str) -> None:
    for one in _organizations(month):
        rows = rows_of(streamed(month_spec(one, "focus", grain=grain)))
        assert nano_of(rows, "x_AmountNanoUsd") == month.owed(one)
        assert sum(Decimal(row["BilledCost"]) for row in rows) == month.owed(one) * NANO
        entries = [int(row["x_AmountNanoUsd"]) for row in rows if row["x_EntryId"]]
        assert sum(entries) == month.corrected(one)


@pytest.mark.parametrize("grain", ["day", "entry"])
def test_the_journal_balances_and_has_every_entry(month: Month, grain: str) -> None:
    for one in _organizations(month):
        rows = rows_of(streamed(month_spec(one, "journal", grain=grain)))
        assert nano_of(rows) == 0
        debits = sum(Decimal(row["debit_usd"] or 0) for row in rows)
        assert debits == sum(Decimal(row["credit_usd"] or 0) for row in rows)
        revenue: Counter[str] = Counter()
        for row in rows:
            if row["account"].startswith("revenue:"):
                revenue[row["account"]] -= int(row["amount_nano_usd"])
        reversed_ = sum(
            entry.amount for entry in month.corrections(one) if entry.kind == "reversal"
        )
        assert sum(revenue.values()) == month.charged(one) - reversed_
        by_voucher: Counter[str] = Counter()
        for row in rows:
            by_voucher[row["voucher"]] += int(row["amount_nano_usd"])
        assert set(by_voucher.values()) == {0}
        cash = [row for row in rows if row["account"] == "cash:bank"]
        assert [row["debit_usd"] for row in cash] == (
            ["10.000000000"] if one == month.cast.acme.id else []
        )


@pytest.mark.parametrize(("kind", "grain"), EVERY)
def test_a_file_is_the_same_bytes_by_a_job_and_streamed(
    month: Month, kind: str, grain: str
) -> None:
    spec = month_spec(month.cast.acme.id, kind, grain=grain)
    first, data = made_by_job(month.cast, spec)
    second, again = made_by_job(month.cast, spec)
    assert first.state == ExportState.DONE
    assert data == again == streamed(spec)
    assert first.manifest == second.manifest
    manifest = first.manifest
    assert manifest is not None
    assert manifest["sha256"] == hashlib.sha256(data).hexdigest() == first.sha256
    assert manifest["bytes"] == len(data)
    assert manifest["rows"] == len(rows_of(data)) == data.count(b"\r\n") - 1
    assert manifest["complete"] is True
    assert manifest["periods"] == {"2025-10": "closing"}


def _model_day(line: Line) -> tuple[str, str]:
    return line.model, line.booked_at.date().isoformat()


def test_usage_agrees_by_model_and_day(month: Month) -> None:
    acme = month.cast.acme.id
    sums: Counter[tuple[str, str]] = Counter()
    for row in rows_of(streamed(month_spec(acme, "usage", grain="hour"))):
        sums[row["model"], row["start"][:10]] += int(row["amount_nano_usd"])
    assert sums == month.sums(acme, _model_day)
