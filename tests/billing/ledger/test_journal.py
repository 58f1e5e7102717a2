"""The journal: booked once under a key, between two accounts, reversed never beyond what was."""

from __future__ import annotations

import io
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from django.core.exceptions import ValidationError
from django.core.management import call_command
from django.db import connections
from django.db.utils import ProgrammingError

from controlplane.billing.ledger import accounts
from controlplane.billing.ledger.journal import journal_book
from controlplane.billing.ledger.models import EntryKind, JournalEntry
from controlplane.bridge.money.ledger import PostgresLedger
from controlplane.core.audit.entries import OPERATOR
from controlplane.core.errors.body import Conflict
from controlplane.core.permissions import organization_scope
from controlplane.gateway.ports import BudgetExceeded, Hold
from tests.support.money import (
    ALICE_KEY,
    ORG_A,
    ORG_C,
    add_budget,
    budget_row,
    make_hold,
    rows,
    settlement_of,
)
from tests.support.orm import orm

WALLET = accounts.wallet_id(ORG_A)


def top_up(nano: int, key: str = "one", **other: Any) -> JournalEntry:
    """Money into Acme's wallet."""
    booking: dict[str, Any] = {
        "organization": ORG_A,
        "kind": EntryKind.TOPUP,
        "debit": accounts.cash("stripe"),
        "credit": accounts.wallet(ORG_A),
        "nano": nano,
        "reason": "card",
        "idempotency": key,
        "actor": OPERATOR,
    }
    return journal_book(**(booking | other))


def reverse(hold: Hold, nano: int, key: str = "back", **other: Any) -> JournalEntry:
    """Part of a request's charge given back."""
    payer = accounts.wallet if WALLET.hex in hold.budgets else accounts.receivable
    booking = {
        "kind": EntryKind.REVERSAL,
        "debit": accounts.revenue(hold.model),
        "credit": payer(ORG_A),
        "reverses": uuid.UUID(bytes=hold.request),
    }
    return top_up(nano, key, **(booking | other))


def limit_of(budget: uuid.UUID) -> int:
    """Its enforced limit."""
    found: int = rows("SELECT lim FROM budgets WHERE id = %s", budget)[0][0]
    return found


def verified() -> str:
    """Every invariant; sealed first."""
    rows("SELECT ledger_seal(clock_timestamp(), 1000, 8)")
    out = io.StringIO()
    call_command("verify_ledger", stdout=out)
    return out.getvalue()


def test_a_top_up_books_once_and_fills_the_wallet(database: str) -> None:
    first = top_up(500)
    assert top_up(500) == first
    assert limit_of(WALLET) == 500
    top_up(200, "two")
    assert limit_of(WALLET) == 700
    assert rows("SELECT count(*), sum(amount) FROM journal_entries") == [(2, 700)]
    audited = rows("SELECT action, subject_id, detail->>'nano' FROM audit_entries ORDER BY id")
    assert audited[0] == ("journal.topup", first.id, "500")
    assert len(audited) == 2
    assert "BREACHES" not in verified()


def test_the_same_key_with_other_content_is_a_conflict(database: str) -> None:
    top_up(500)
    with pytest.raises(Conflict, match="used for a different entry"):
        top_up(501)
    assert limit_of(WALLET) == 500


def test_a_race_on_one_key_books_once(database: str) -> None:
    def book(_: int) -> uuid.UUID:
        try:
            return top_up(500).id
        finally:
            connections.close_all()

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(book, range(8)))) == 1
    assert limit_of(WALLET) == 500


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("nano", {"nano": 0}),
        ("nano", {"nano": 10**18 + 1}),
        ("debit", {"debit": "shoebox:mine"}),
        ("debit", {"debit": "cash"}),
        ("credit", {"debit": accounts.wallet(ORG_A)}),
        ("reason", {"reason": " "}),
        ("idempotency", {"idempotency": ""}),
        ("reverses", {"reverses": uuid.UUID(int=1)}),
        ("reverses", {"kind": EntryKind.REVERSAL}),
        ("reverses", {"kind": EntryKind.REVERSAL, "reverses": uuid.UUID(int=1)}),
        # Nothing was ever put in that could be taken out.
        ("nano", {"debit": accounts.wallet(ORG_A), "credit": accounts.cash("stripe")}),
    ],
)
def test_what_cannot_be_booked_names_its_field(
    database: str, field: str, wrong: dict[str, Any]
) -> None:
    with pytest.raises(ValidationError) as raised:
        top_up(**({"nano": 5} | wrong))
    assert list(raised.value.message_dict) == [field]
    assert rows("SELECT count(*) FROM journal_entries, budgets") == [(0,)]


def test_an_entry_is_reversed_at_most_whole(database: str) -> None:
    entry = top_up(500)
    back = {
        "kind": EntryKind.REVERSAL,
        "debit": accounts.wallet(ORG_A),
        "credit": accounts.cash("stripe"),
        "reverses": entry.id,
    }
    top_up(300, "a", **back)
    with pytest.raises(ValidationError, match="200 of 500 nano-USD remain"):
        top_up(201, "b", **back)
    with pytest.raises(ValidationError, match="goes from"):
        top_up(1, "c", **(back | {"credit": accounts.cash("bank")}))
    last = top_up(200, "d", **back)
    with pytest.raises(ValidationError, match="no entry or charge"):
        top_up(1, "e", **(back | {"reverses": last.id}))
    assert limit_of(WALLET) == 0
    assert "BREACHES" not in verified()


async def test_requests_of_a_prepaid_organization_debit_its_wallet(ledger: PostgresLedger) -> None:
    await orm(top_up)(100)
    add_budget(ALICE_KEY, 1_000, scope="key")
    for amount, expires_s in ((40, 60), (0, 60), (0, 0)):
        hold = make_hold(50, ALICE_KEY, WALLET, expires_s=expires_s)
        await ledger.hold(hold)
        if expires_s:
            await ledger.settle(settlement_of(hold, amount))
    rows("SELECT ledger_expire(10)")
    await ledger.settle(settlement_of(hold, 7))
    assert budget_row(WALLET) == (47, 0, 0)
    with pytest.raises(BudgetExceeded) as refused:
        await ledger.hold(make_hold(54, ALICE_KEY, WALLET))
    assert (refused.value.scope, refused.value.budget) == ("wallet", WALLET.hex)
    over = make_hold(10, WALLET)
    await ledger.hold(over)
    await ledger.settle(settlement_of(over, 60))
    assert budget_row(WALLET) == (107, 0, 7)
    debits = rows("SELECT DISTINCT kind, debit FROM transfers ORDER BY kind")
    kinds = ("expire", "hold", "late", "overage", "release", "settle")
    assert debits == [(kind, f"wallet:{ORG_A}") for kind in kinds]
    assert "BREACHES" not in await orm(verified)()


async def test_a_lost_hold_is_booked_to_the_wallet_too(ledger: PostgresLedger) -> None:
    await orm(top_up)(100)
    hold = make_hold(50, WALLET)
    await ledger.settle(settlement_of(hold, 30))
    assert rows("SELECT kind, debit FROM transfers ORDER BY slot") == [
        ("hold", f"wallet:{ORG_A}"),
        ("settle", f"wallet:{ORG_A}"),
    ]
    free = make_hold(0)
    await ledger.settle(settlement_of(free, 5))
    assert rows("SELECT debit FROM transfers WHERE amount = 5") == [(f"receivable:{ORG_A}",)]
    assert "BREACHES" not in await orm(verified)()


@pytest.mark.parametrize("prepaid", [True, False])
async def test_a_reversed_charge_makes_room_again(ledger: PostgresLedger, prepaid: bool) -> None:
    await orm(top_up)(100)
    add_budget(ALICE_KEY, 100, scope="key")
    budgets = (ALICE_KEY, WALLET) if prepaid else (ALICE_KEY,)
    hold = make_hold(80, *budgets)
    await ledger.hold(hold)
    await ledger.settle(settlement_of(hold, 90))
    await orm(reverse)(hold, 60)
    with pytest.raises(ValidationError, match="30 of 90 nano-USD remain"):
        await orm(reverse)(hold, 31, "more")
    assert limit_of(ALICE_KEY) == 160
    assert limit_of(WALLET) == (160 if prepaid else 100)
    assert budget_row(ALICE_KEY) == (90, 0, 0)
    await ledger.hold(make_hold(70, *budgets))
    await orm(reverse)(hold, 30, "rest")
    assert "BREACHES" not in await orm(verified)()


async def test_a_request_is_reversed_between_its_own_accounts(ledger: PostgresLedger) -> None:
    await orm(top_up)(100)
    hold = make_hold(80, WALLET)
    await ledger.hold(hold)
    await ledger.settle(settlement_of(hold, 40))
    for wrong in ({"credit": accounts.receivable(ORG_A)}, {"debit": accounts.revenue("other")}):
        with pytest.raises(ValidationError, match="A reversal of"):
            await orm(reverse)(hold, 5, "w", **wrong)


def test_the_app_books_only_in_its_scope(database: str) -> None:
    call = "SELECT * FROM ledger_journal(gen_random_uuid(), %s, 'topup', 'cash:x', %s, 1, 'r', '',"
    with (
        pytest.raises(ProgrammingError, match="outside the scope"),
        organization_scope([ORG_A]),
        connections["default"].cursor() as cursor,
    ):
        cursor.execute(call + " NULL, 'k', 'me', '')", [ORG_C, accounts.wallet(ORG_C)])


@pytest.mark.parametrize("alias", ["default", "gateway"])
def test_no_role_writes_the_journal_itself(database: str, alias: str) -> None:
    with (
        connections[alias].cursor() as cursor,
        pytest.raises(ProgrammingError, match="permission denied"),
    ):
        cursor.execute("INSERT INTO journal_entries (id) VALUES (gen_random_uuid())")


@pytest.mark.parametrize(
    "statement",
    ["UPDATE {} SET amount = 1", "DELETE FROM {}", "TRUNCATE {}"],
)
def test_the_journal_is_append_only(database: str, statement: str) -> None:
    top_up(500)
    with pytest.raises(psycopg.errors.RestrictViolation, match="append-only"):
        rows(statement.format("journal_entries"))


FORGERIES: list[tuple[str, str, str]] = [
    ("L7", "journal_entries", "UPDATE journal_entries SET reason = 'gift'"),
    ("L2", "journal_entries", "UPDATE journal_entries SET amount = 501"),
    ("L2", "budgets", "UPDATE budgets SET lim = lim + 1 WHERE scope = 'wallet'"),
    ("L2", "budget_terms", "UPDATE budget_terms SET given = 1"),
    ("L3", "ledger_hours", "UPDATE ledger_hours SET nano = nano + 1"),
    ("L3", "ledger_hours", "UPDATE ledger_hours SET hour = hour - interval '1 hour'"),
    ("L2", "transfers", "UPDATE transfers SET debit = 'receivable:' || organization"),
]


@pytest.fixture
async def prepaid(ledger: PostgresLedger) -> Callable[[], str]:
    await orm(top_up)(500)
    add_budget(ALICE_KEY, 100, scope="key")
    rows(
        "INSERT INTO budget_terms (budget, organization, allowance) VALUES (%s, %s, 100)",
        ALICE_KEY,
        ORG_A,
    )
    hold = make_hold(80, WALLET)
    await ledger.hold(hold)
    await ledger.settle(settlement_of(hold, 40))
    return verified


@pytest.mark.parametrize(("invariant", "table", "statement"), FORGERIES)
def test_each_forgery_is_named(
    prepaid: Callable[[], str], invariant: str, table: str, statement: str
) -> None:
    assert "BREACHES" not in prepaid()
    rows(f"ALTER TABLE {table} DISABLE TRIGGER USER")
    rows(statement)
    rows(f"ALTER TABLE {table} ENABLE TRIGGER USER")
    assert f"{invariant} ok" not in prepaid()
