"""Wallets: filled by people with a reason, above a limit by two of them, seen by their own."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from io import StringIO

import pytest
from django.core.exceptions import ObjectDoesNotExist, PermissionDenied, ValidationError
from django.core.management import CommandError, call_command
from django.db import connections
from django.test import override_settings

from controlplane.billing.approvals.models import GrantKind, GrantState, WalletGrant
from controlplane.billing.approvals.selectors import grant_get, grant_list, grants_pending
from controlplane.billing.budgets.models import BudgetScope
from controlplane.billing.budgets.services import budget_set
from controlplane.billing.decisions.services import grant_approve, grant_refuse
from controlplane.billing.ledger.accounts import wallet_id
from controlplane.billing.wallets.selectors import wallet_entries, wallet_get
from controlplane.billing.wallets.services import Gift, wallet_grant
from controlplane.core.audit.entries import OPERATOR, Actor
from controlplane.core.errors.body import Conflict
from controlplane.core.models import uuid7
from tests.support.money import rows
from tests.support.people import Cast, make_cast, make_steve, signed_in

USD = 1_000_000_000


@pytest.fixture
def cast(database: str) -> Cast:
    return make_cast()


def give(
    cast: Cast,
    usd: int,
    *,
    actor: Actor | None = None,
    kind: GrantKind = GrantKind.TOPUP,
    form: uuid.UUID | None = None,
) -> WalletGrant:
    return wallet_grant(
        actor=actor or cast.stella,
        organization_id=cast.acme.id,
        gift=Gift(kind=kind, amount_nano=usd * USD, reason="bank transfer 17"),
        form=form or uuid7(),
        becomes_prepaid=True,
    )


def test_its_page_names_the_room_of_the_organizations_budget(cast: Cast) -> None:
    give(cast, 10)
    acme = cast.acme.id
    budget_set(acme, cast.project.id, scope=BudgetScope.PROJECT, limit_nano=USD)
    told = "the organization's has"
    alice = signed_in(cast.alice)
    assert told not in alice.get("/wallet").text
    budget_set(acme, acme, scope=BudgetScope.ORGANIZATION, limit_nano=2 * USD)
    assert f"{told} $2.00 left" in alice.get("/wallet").text


def balance(cast: Cast) -> int | None:
    found = wallet_get(actor=cast.alice, organization_id=cast.acme.id)
    return found.balance if found else None


def audited() -> list[tuple[str, str]]:
    return rows(
        "SELECT action, actor_label FROM audit_entries WHERE action LIKE 'wallet.%%' ORDER BY id"
    )


def test_a_top_up_makes_the_organization_prepaid(cast: Cast) -> None:
    assert balance(cast) is None
    made = give(cast, 50)
    assert made.state == GrantState.BOOKED
    assert balance(cast) == 50 * USD
    assert rows("SELECT lim, scope FROM budgets WHERE id = %s", wallet_id(cast.acme.id)) == [
        (50 * USD, "wallet")
    ]
    (entry,) = wallet_entries(actor=cast.alice, organization_id=cast.acme.id).rows
    assert (entry.kind, entry.amount, entry.reason) == ("topup", 50 * USD, "bank transfer 17")
    assert audited() == [("wallet.grant", "stella@example.org")]


def test_credit_goes_to_the_wallet_or_lowers_what_is_owed(cast: Cast) -> None:
    give(cast, 5, kind=GrantKind.CREDIT)
    assert balance(cast) is None
    give(cast, 10)
    give(cast, 7, kind=GrantKind.CREDIT)
    assert balance(cast) == 17 * USD
    acme = cast.acme.id
    assert rows("SELECT credit, amount FROM journal_entries WHERE kind = 'credit' ORDER BY id") == [
        (f"receivable:{acme}", 5 * USD),
        (f"wallet:{acme}", 7 * USD),
    ]


def test_above_the_limit_a_second_person_decides(cast: Cast) -> None:
    made = give(cast, 1_001)
    assert made.state == GrantState.PENDING
    assert balance(cast) is None
    with pytest.raises(PermissionDenied):
        grant_approve(actor=cast.stella, grant=made)
    assert balance(cast) is None
    # Whoever asked may hold the operator's token, too.
    with pytest.raises(PermissionDenied, match="Only a user"):
        grant_approve(actor=OPERATOR, grant=made)
    second = make_steve()
    assert [one.id for one in grants_pending(actor=second)] == [made.id]
    done = grant_approve(actor=second, grant=made)
    assert (done.state, done.decided_label) == (GrantState.BOOKED, "steve@example.org")
    assert balance(cast) == 1_001 * USD
    assert rows("SELECT actor_label, approved_by FROM journal_entries") == [
        ("stella@example.org", "steve@example.org")
    ]
    assert audited() == [
        ("wallet.grant_ask", "stella@example.org"),
        ("wallet.grant_approve_refused", "stella@example.org"),
        ("wallet.grant_approve_refused", "operator"),
        ("wallet.grant_approve", "steve@example.org"),
    ]
    for decide in (grant_approve, grant_refuse):
        with pytest.raises(Conflict):
            decide(actor=second, grant=made)
    assert grants_pending(actor=second) == []


def test_it_cannot_be_given_in_parts(cast: Cast) -> None:
    assert [give(cast, 400).state for _ in range(3)] == ["booked", "booked", "pending"]
    # Somebody else has a limit of their own; what was approved by two counts on nobody's.
    assert give(cast, 1_000, actor=OPERATOR).state == "booked"
    assert give(cast, 1, actor=OPERATOR).state == "pending"


def test_at_once_it_cannot_be_given_in_parts_either(cast: Cast) -> None:
    def attempt(_: int) -> str:
        try:
            return give(cast, 400).state
        finally:
            connections.close_all()

    with ThreadPoolExecutor(8) as threads:
        states = list(threads.map(attempt, range(8)))
    assert sorted(states) == ["booked"] * 2 + ["pending"] * 6
    assert balance(cast) == 800 * USD


def test_one_of_two_decisions_at_once_counts(cast: Cast) -> None:
    made, second = give(cast, 2_000), make_steve()

    def decide(number: int) -> bool:
        try:
            (grant_approve if number % 2 else grant_refuse)(actor=second, grant=made)
        except Conflict:
            return False
        finally:
            connections.close_all()
        return True

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(decide, range(8))) == 1
    kept = grant_get(actor=cast.stella, organization_id=cast.acme.id, grant_id=made.id)
    assert balance(cast) == (2_000 * USD if kept.state == GrantState.BOOKED else None)


def test_what_is_refused_is_never_booked(cast: Cast) -> None:
    made = give(cast, 2_000)
    assert grant_refuse(actor=cast.stella, grant=made).state == GrantState.REFUSED
    with pytest.raises(Conflict):
        grant_approve(actor=make_steve(), grant=made)
    assert balance(cast) is None
    (kept,) = grant_list(actor=cast.alice, organization_id=cast.acme.id).rows
    assert kept.state == GrantState.REFUSED


def test_a_form_sent_twice_gives_once(cast: Cast) -> None:
    form = uuid7()
    assert give(cast, 20, form=form).id == give(cast, 20, form=form).id == form
    assert balance(cast) == 20 * USD
    with pytest.raises(Conflict):
        give(cast, 21, form=form)
    with pytest.raises(Conflict):
        wallet_grant(
            actor=cast.stella,
            organization_id=cast.other.id,
            gift=Gift(kind=GrantKind.TOPUP, amount_nano=20 * USD, reason="bank transfer 17"),
            form=form,
            becomes_prepaid=True,
        )


@pytest.mark.parametrize(("nano", "reason", "field"), [(0, "x", "amount"), (5, " ", "reason")])
def test_wrong_values_are_named(cast: Cast, nano: int, reason: str, field: str) -> None:
    with pytest.raises(ValidationError) as caught:
        wallet_grant(
            actor=cast.stella,
            organization_id=cast.acme.id,
            gift=Gift(kind=GrantKind.TOPUP, amount_nano=nano, reason=reason),
            form=uuid7(),
            becomes_prepaid=True,
        )
    assert list(caught.value.message_dict) == [field]


def test_members_give_themselves_nothing_and_strangers_see_nothing(cast: Cast) -> None:
    with pytest.raises(PermissionDenied):
        give(cast, 1, actor=cast.alice)
    with pytest.raises(PermissionDenied):
        grants_pending(actor=cast.alice)
    with pytest.raises(PermissionDenied):
        wallet_get(actor=cast.bob, organization_id=cast.acme.id)
    with pytest.raises(ObjectDoesNotExist):
        wallet_get(actor=cast.charlie, organization_id=cast.acme.id)
    with pytest.raises(ObjectDoesNotExist):
        wallet_grant(
            actor=cast.stella,
            organization_id=uuid7(),
            gift=Gift(kind=GrantKind.TOPUP, amount_nano=USD, reason="nobody"),
            form=uuid7(),
            becomes_prepaid=True,
        )


def test_a_low_balance_shows(cast: Cast) -> None:
    give(cast, 9)
    found = wallet_get(actor=cast.alice, organization_id=cast.acme.id)
    assert found is not None and found.low and found.days_left is None
    with override_settings(LOW_BALANCE_USD=9):
        assert not found.low


def test_the_operator_gives_at_the_command_line_and_is_no_second_person(cast: Cast) -> None:
    def run(*words: str) -> str:
        out = StringIO()
        call_command("wallet", *words, stdout=out)
        return out.getvalue()

    assert "pays by invoice" in run("show", "Acme")
    cheque = ("--usd", "12.50", "--reason", "cheque 4")
    with pytest.raises(CommandError, match="--becomes-prepaid"):
        run("give", "Acme", *cheque)
    assert "booked" in run("give", "Acme", *cheque, "--becomes-prepaid")
    assert run("show", "Acme").startswith("balance 12.500000000 USD")
    made, kind, *_ = run("give", "Acme", "--usd", "5000", "--reason", "transfer").split()
    assert kind == "topup" and made in run("pending")
    with pytest.raises(CommandError, match="invalid choice: 'approve'"):
        run("approve", made)
    (grant,) = grants_pending(actor=cast.stella)
    grant_approve(actor=cast.stella, grant=grant)
    assert run("show", "Acme").startswith("balance 5012.500000000 USD")
    for usd in ("NaN", "1e999999", "-5", "0.0000000001", "much"):
        with pytest.raises(CommandError):
            run("give", "Acme", "--usd", usd, "--reason", "odd")


def test_a_first_top_up_asks_to_be_confirmed_and_a_credit_or_the_next_does_not(cast: Cast) -> None:
    def unconfirmed(kind: GrantKind) -> WalletGrant:
        gift = Gift(kind=kind, amount_nano=USD, reason="transfer")
        return wallet_grant(
            actor=cast.stella, organization_id=cast.acme.id, gift=gift, form=uuid7()
        )

    unconfirmed(GrantKind.CREDIT)
    with pytest.raises(ValidationError) as caught:
        unconfirmed(GrantKind.TOPUP)
    assert list(caught.value.message_dict) == ["becomes_prepaid"]
    assert balance(cast) is None
    give(cast, 5)
    unconfirmed(GrantKind.TOPUP)
    assert balance(cast) == 6 * USD
