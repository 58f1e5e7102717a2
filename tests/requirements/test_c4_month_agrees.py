"""C4, C5: one seeded month shows one total everywhere: page, API, files, invoice, ledger."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client

from controlplane.billing.documents.lines import LineKind, lines_read
from controlplane.billing.exports.models import ExportState
from controlplane.billing.exports.services import DueExport
from controlplane.billing.exports.writer import export_write
from controlplane.billing.invoices.services import invoice_issue
from controlplane.billing.ledger.accounts import account_text, receivable
from controlplane.billing.ledger.hours import hours
from controlplane.billing.months.closes import period_close_now
from controlplane.billing.months.periods import Period
from controlplane.kernel.ids import uuid_of
from controlplane.kernel.money import usd_text
from tests.support.exports import Rows, made_by_job, month_spec, nano_of, rows_of
from tests.support.money import rows
from tests.support.month import END, PERIOD, START, Month, seal_month, seed_month
from tests.support.people import make_cast, signed_in

OCTOBER = Period(PERIOD)
NANO = Decimal("0.000000001")
# What Acme paid in October.
PAID = 10_000_000_000
FILES = [
    ("usage", "day"),
    ("usage", "hour"),
    ("detail", "entry"),
    ("focus", "day"),
    ("focus", "hour"),
    ("journal", "day"),
    ("journal", "entry"),
]


@pytest.fixture
def month(database: str) -> Month:
    made = seed_month(make_cast())
    seal_month()
    return made


def _get(client: Client, path: str, **query: str | int) -> Any:
    answer = client.get(path, query)
    assert answer.status_code == 200, answer.content
    return answer


def _stream(client: Client, month: Month, **query: str) -> Rows:
    path = f"/api/billing/organizations/{month.cast.acme.id}/exports/stream"
    return rows_of(b"".join(_get(client, path, period=PERIOD, **query).streaming_content))


def _booked(month: Month) -> int:
    """Requests of October, summed by PostgreSQL from the lines themselves."""
    found = rows(
        "SELECT sum(amount)::bigint FROM transfers WHERE organization = %s AND booked_at >= %s"
        " AND booked_at < %s AND kind IN ('settle', 'overage', 'late')",
        month.cast.acme.id,
        START,
        END,
    )
    return int(found[0][0])


def test_one_month_has_one_total_everywhere(month: Month) -> None:
    cast, acme = month.cast, month.cast.acme.id
    assert _booked(month) == month.charged(acme)
    (charged,) = hours(organizations=[acme], start=START, end=END, by=())
    assert charged.nano == month.charged(acme)
    closed = period_close_now(actor=cast.alice, organization=acme, period=OCTOBER)
    sums = {account: debited - credited for account, (debited, credited) in closed.totals.items()}
    assert sums[receivable(acme)] == month.owed(acme) - PAID
    assert sum(sums.values()) == 0
    client = signed_in(cast.alice)
    _books_agree(client, month)
    _invoice_agrees(client, month)
    _api_agrees(client, month)
    _files_agree(client, month)
    call_command("verify_ledger", strict=True)


def _books_agree(client: Client, month: Month) -> None:
    """The page Ledger and its API show the balance of all months."""
    acme = month.cast.acme.id
    every = sum(line.amount for line in month.lines if line.posts and line.organization == acme)
    balance = every + sum(entry.owed for entry in month.entries if entry.organization == acme)
    assert f">{usd_text(balance)}</td>" in _get(client, "/ledger").content.decode()
    accounts = _get(client, f"/api/billing/organizations/{acme}/accounts").json()["data"]
    told = {one["account"]: one["balance_nano"] for one in accounts}
    assert told[account_text(receivable(acme))] == balance


def _invoice_agrees(client: Client, month: Month) -> None:
    """The invoice, its CSV, and the FOCUS file that names it."""
    acme, owed = month.cast.acme.id, month.owed(month.cast.acme.id)
    invoice = invoice_issue(actor=month.cast.alice, organization_id=acme, period=OCTOBER)
    lines = lines_read(invoice.lines)
    assert invoice.subtotal_nano == owed
    assert sum(line.amount_pico for line in lines) == owed * 1_000
    corrections = [line for line in lines if line.kind == LineKind.CORRECTION]
    assert sum(line.amount_pico for line in corrections) == month.corrected(acme) * 1_000
    path = f"/api/billing/organizations/{acme}/invoices/{invoice.id}.csv"
    billed = [row for row in rows_of(_get(client, path).content) if row["line"]]
    assert sum(Decimal(row["amount_usd"]) for row in billed) == owed * NANO
    assert {row["InvoiceId"] for row in _stream(client, month, kind="focus")} == {invoice.title}


def _api_agrees(client: Client, month: Month) -> None:
    """Costs in OpenAI's shape."""
    times = {"start_time": int(START.timestamp()), "end_time": int(END.timestamp())}
    costs = _get(client, "/v1/organization/costs", **times, limit=31).json()
    found = [one["amount"]["nano_usd"] for day in costs["data"] for one in day["results"]]
    assert sum(found) == month.charged(month.cast.acme.id)


def _files_agree(client: Client, month: Month) -> None:
    """Streamed files, and the sums on the page of exports."""
    cast, acme = month.cast, month.cast.acme.id
    charged, owed = month.charged(acme), month.owed(acme)
    assert nano_of(_stream(client, month, kind="usage")) == charged
    assert nano_of(_stream(client, month, kind="usage", grain="hour")) == charged
    assert nano_of(_stream(client, month, kind="detail")) == charged
    focus = _stream(client, month, kind="focus")
    assert nano_of(focus, "x_AmountNanoUsd") == owed
    assert sum(Decimal(row["BilledCost"]) for row in focus) == owed * NANO
    journal = _stream(client, month, kind="journal")
    account = account_text(receivable(acme))
    assert nano_of(row for row in journal if row["account"] == account) == owed - PAID
    made_by_job(cast, month_spec(acme, "usage"))
    made_by_job(cast, month_spec(acme, "focus"))
    page = _get(client, "/exports").content.decode()
    assert re.findall(r'title="(-?[0-9.]+)"', page) == [usd_text(owed), usd_text(charged)]


@pytest.mark.parametrize(("kind", "grain"), FILES)
def test_a_closed_month_gives_the_same_bytes(month: Month, kind: str, grain: str) -> None:
    cast = month.cast
    period_close_now(actor=cast.alice, organization=cast.acme.id, period=OCTOBER)
    spec = month_spec(cast.acme.id, kind, grain=grain)
    (first, data), (second, again) = made_by_job(cast, spec), made_by_job(cast, spec)
    assert data == again and len(data) > 10_000
    assert first.manifest == second.manifest
    assert first.manifest is not None and first.manifest["periods"] == {PERIOD: "closed"}


def test_an_export_is_asked_for_watched_and_fetched_by_page_and_api(month: Month) -> None:
    cast, acme = month.cast, month.cast.acme.id
    client, base = signed_in(cast.alice), f"/api/billing/organizations/{acme}/exports"
    assert client.post("/exports", {"kind": "usage", "period": PERIOD}).status_code == 302
    (listed,) = _get(client, base).json()["data"]
    assert listed["state"] == ExportState.WAITING
    assert "every 2s" in _get(client, "/exports").content.decode()
    assert client.get(f"{base}/{listed['id']}/file").status_code == 404
    from_api = client.post(
        base,
        {"kind": "usage", "start": "2025-10-01", "end": "2025-11-01"},
        content_type="application/json",
    ).json()
    files = [_finished(client, month, made["id"]) for made in (listed, from_api)]
    assert files[0] == files[1]
    assert nano_of(rows_of(files[0])) == month.charged(acme)
    assert "every 2s" not in _get(client, "/exports").content.decode()


def _finished(client: Client, month: Month, export: str) -> bytes:
    """Let a worker write it, then fetch it by page and by API."""
    while export_write(DueExport(month.cast.acme.id, uuid_of(export, "export"))):
        continue
    base = f"/api/billing/organizations/{month.cast.acme.id}/exports/{export}"
    state = _get(client, base).json()
    assert state["state"] == ExportState.DONE and state["done_permille"] == 1_000
    by_api = b"".join(_get(client, f"{base}/file").streaming_content)
    answer = _get(client, f"/exports/{export}/file")
    assert b"".join(answer.streaming_content) == by_api
    assert answer["Content-Disposition"].startswith('attachment; filename="sluice-usage-2025-10-01')
    manifest = _get(client, f"/exports/{export}/manifest").json()
    assert manifest == state["manifest"]
    return by_api
