"""C4, C5: one seeded month shows one total everywhere: page, API, files, invoice, ledger."""

from __future__ import annotations

import re
import uuid
from collections import Counter
from decimal import Decimal
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client

from controlplane.billing.accounts import Group, group_of, receivable
from controlplane.billing.closes import period_close
from controlplane.billing.exports.services import Due
from controlplane.billing.exports.writer import export_write
from controlplane.billing.hours import total_nano
from controlplane.billing.invoice_lines import LineKind, lines_read
from controlplane.billing.invoices import invoice_issue
from controlplane.billing.models_exports import ExportState
from controlplane.billing.periods import Period
from controlplane.kernel.money import usd_text
from tests.support.exports import Rows, made_by_job, month_spec, nano_of, rows_of
from tests.support.money import rows
from tests.support.month import END, PERIOD, START, Month, seal_month, seed_month
from tests.support.people import make_cast, signed_in

OCTOBER = Period(PERIOD)
NANO = Decimal("0.000000001")
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
    charged, owed = month.charged(acme), month.owed(acme)
    assert _booked(month) == charged
    assert total_nano(organization=acme, start=START, end=END) == charged
    closed = period_close(actor=cast.alice, organization=acme, period=OCTOBER)
    client, billing = signed_in(cast.alice), f"/api/billing/organizations/{acme}"

    # The close: what the customer owes and what models earned, debit and credit.
    sums: Counter[Group] = Counter()
    for account, (debited, credited) in closed.totals.items():
        sums[group_of(account)] += debited - credited
    payments = 10_000_000_000
    assert closed.totals[receivable(acme)][0] - closed.totals[receivable(acme)][1] == (
        owed - payments
    )
    assert sum(sums.values()) == 0

    # The page Ledger and its API: the balance of all months.
    every = sum(line.amount for line in month.lines if line.posts and line.organization == acme)
    balance = every + sum(entry.owed for entry in month.entries if entry.organization == acme)
    ledger = _get(client, "/ledger").content.decode()
    assert f">{usd_text(balance)}</td>" in ledger
    told = {
        one["account"]: one["balance_nano"]
        for one in _get(client, f"{billing}/accounts").json()["data"]
    }
    assert told[receivable(acme)] == balance

    # The invoice and its CSV.
    invoice = invoice_issue(actor=cast.alice, organization_id=acme, period=OCTOBER)
    lines = lines_read(invoice.lines)
    assert invoice.subtotal_nano == owed
    assert sum(line.amount_pico for line in lines) == owed * 1_000
    corrections = [line for line in lines if line.kind == LineKind.CORRECTION]
    assert sum(line.amount_pico for line in corrections) == month.corrected(acme) * 1_000
    path = f"{billing}/invoices/{invoice.id}.csv"
    billed = [row for row in rows_of(_get(client, path).content) if row["line"]]
    assert sum(Decimal(row["amount_usd"]) for row in billed) == owed * NANO

    # The API, in the shape of OpenAI's costs, and streamed files.
    costs = _get(
        client,
        "/v1/organization/costs",
        start_time=int(START.timestamp()),
        end_time=int(END.timestamp()),
        limit=31,
    ).json()
    found = [one["amount"]["nano_usd"] for day in costs["data"] for one in day["results"]]
    assert sum(found) == charged
    assert nano_of(_stream(client, month, kind="usage")) == charged
    assert nano_of(_stream(client, month, kind="usage", grain="hour")) == charged
    assert nano_of(_stream(client, month, kind="detail")) == charged
    focus = _stream(client, month, kind="focus")
    assert nano_of(focus, "x_AmountNanoUsd") == owed
    assert sum(Decimal(row["BilledCost"]) for row in focus) == owed * NANO
    assert {row["InvoiceId"] for row in focus} == {invoice.title}
    journal = _stream(client, month, kind="journal")
    mine = [row for row in journal if row["account"] == receivable(acme)]
    assert nano_of(mine) == owed - payments

    # The page of exports.
    made_by_job(cast, month_spec(acme, "usage"))
    made_by_job(cast, month_spec(acme, "focus"))
    page = _get(client, "/exports").content.decode()
    assert re.findall(r'title="(-?[0-9.]+)"', page) == [usd_text(owed), usd_text(charged)]
    call_command("verify_ledger", strict=True)


@pytest.mark.parametrize(("kind", "grain"), FILES)
def test_a_closed_month_gives_the_same_bytes(month: Month, kind: str, grain: str) -> None:
    cast = month.cast
    period_close(actor=cast.alice, organization=cast.acme.id, period=OCTOBER)
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
    while export_write(Due(month.cast.acme.id, uuid.UUID(export))):
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
