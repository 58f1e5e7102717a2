"""Budgets by the calendar: what counts, when they turn, what they carry over, whom they tell."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core import mail
from django.core.exceptions import ObjectDoesNotExist, PermissionDenied, ValidationError

from controlplane.billing.budgets import services
from controlplane.billing.budgets.models import Budget, BudgetScope
from controlplane.billing.budgets.services import BudgetDraft, budget_end, budget_plan, budget_set
from controlplane.bridge.money.ledger import PostgresLedger
from controlplane.core.permissions import organization_scope
from controlplane.gateway.ports import BudgetExceeded, Hold
from controlplane.slos.channels.budgets import budgets_tell
from controlplane.tenants.keys import apikey_create
from tests.billing.ledger.test_journal import reverse, verified
from tests.support.money import make_hold, rows, settlement_of
from tests.support.orm import orm
from tests.support.people import Cast, make_cast
from tests.support.rules import make_models

DAY = timedelta(days=1)


def noon_zone() -> str:
    """A zone where it is about noon, so that no test meets a midnight."""
    ahead = 12 - datetime.now(UTC).hour
    return f"Etc/GMT{-ahead:+d}" if ahead else "Etc/GMT"


@pytest.fixture
async def cast(database: str) -> Cast:
    return await orm(make_cast)()


def plan(cast: Cast, allowance: int, **draft: Any) -> None:
    """Acme's budget as Alice sets it."""
    budget_plan(
        actor=cast.alice, subject=cast.acme, draft=BudgetDraft(allowance_nano=allowance, **draft)
    )


async def spend(ledger: PostgresLedger, cast: Cast, nano: int) -> Hold:
    """One request of Acme."""
    acme = cast.acme.id
    hold = make_hold(nano, acme, organization=acme)
    await ledger.hold(hold)
    await ledger.settle(settlement_of(hold, nano))
    return hold


def yesterday(cast: Cast) -> None:
    """What was booked so far, and the period that runs, as if it were a day ago."""
    rows("ALTER TABLE transfers DISABLE TRIGGER USER")
    rows("UPDATE transfers SET booked_at = booked_at - interval '1 day'")
    rows("ALTER TABLE transfers ENABLE TRIGGER USER")
    rows("UPDATE budget_terms SET turns_at = began_at, began_at = began_at - interval '1 day'")
    rows("UPDATE budget_alerts SET began_at = began_at - interval '1 day'")


def room(cast: Cast) -> int:
    """What Acme may still spend."""
    left: int = rows("SELECT lim - posted - held FROM budgets WHERE id = %s", cast.acme.id)[0][0]
    return left


async def test_a_budget_that_cannot_turn_keeps_no_other_back(cast: Cast) -> None:
    await orm(plan)(cast, 100, period="day", zone=noon_zone())
    zone = BudgetDraft(allowance_nano=5, period="day", zone=noon_zone())
    await orm(budget_plan)(actor=cast.alice, subject=cast.project, draft=zone)
    await orm(yesterday)(cast)
    rows(
        "UPDATE budget_terms SET zone = 'Mars/Base', turns_at = turns_at - interval '1 hour'"
        " WHERE budget = %s",
        cast.acme.id,
    )
    assert await orm(services.turn_budgets)() == 1


async def test_a_turn_gives_the_allowance_anew(ledger: PostgresLedger, cast: Cast) -> None:
    await orm(plan)(cast, 100, period="day", zone=noon_zone())
    await spend(ledger, cast, 100)
    with pytest.raises(BudgetExceeded):
        await spend(ledger, cast, 1)
    await orm(yesterday)(cast)
    assert await orm(services.turn_budgets)() == 1
    assert await orm(services.turn_budgets)() == 0
    assert room(cast) == 100
    terms = rows("SELECT turns_at - began_at, turns_at > now(), base FROM budget_terms")
    assert terms == [(DAY, True, 100)]
    assert "BREACHES" not in await orm(verified)()


@pytest.mark.parametrize("sealed", [True, False])
async def test_a_turn_that_comes_late_allows_no_more(
    ledger: PostgresLedger, cast: Cast, sealed: bool
) -> None:
    await orm(plan)(cast, 100, period="day", zone=noon_zone())
    await spend(ledger, cast, 20)
    await orm(yesterday)(cast)
    await spend(ledger, cast, 30)
    if sealed:
        rows("SELECT ledger_seal(clock_timestamp(), 1000, 8)")
    assert await orm(services.turn_budgets)() == 1
    assert room(cast) == 70


async def test_unused_money_rolls_over_once(ledger: PostgresLedger, cast: Cast) -> None:
    await orm(plan)(cast, 100, period="day", zone=noon_zone(), rollover=True)
    await spend(ledger, cast, 40)
    for left in (160, 200, 200):
        await orm(yesterday)(cast)
        assert await orm(services.turn_budgets)() == 1
        assert room(cast) == left
    await spend(ledger, cast, 150)
    await orm(yesterday)(cast)
    await orm(services.turn_budgets)()
    assert room(cast) == 150
    assert "BREACHES" not in await orm(verified)()


async def test_an_open_hold_counts_in_the_period_that_settles_it(
    ledger: PostgresLedger, cast: Cast
) -> None:
    await orm(plan)(cast, 100, period="day", zone=noon_zone())
    acme = cast.acme.id
    hold = make_hold(60, acme, organization=acme)
    await ledger.hold(hold)
    await orm(yesterday)(cast)
    await orm(services.turn_budgets)()
    assert room(cast) == 40
    await ledger.settle(settlement_of(hold, 50))
    assert room(cast) == 50


async def test_what_was_spent_before_there_was_a_budget_counts(
    ledger: PostgresLedger, cast: Cast
) -> None:
    acme = cast.acme.id
    await ledger.settle(settlement_of(make_hold(0, organization=acme), 30))
    await orm(plan)(cast, 100, period="month")
    assert room(cast) == 70
    await orm(plan)(cast, 20, period="month")
    assert room(cast) == 0
    await orm(plan)(cast, 50, period="month")
    assert room(cast) == 20
    assert "BREACHES" not in await orm(verified)()


async def test_another_amount_keeps_the_period_another_period_does_not(
    ledger: PostgresLedger, cast: Cast
) -> None:
    await orm(plan)(cast, 100, period="day", zone=noon_zone(), rollover=True)
    await orm(yesterday)(cast)
    await orm(services.turn_budgets)()
    before = rows("SELECT began_at, carried FROM budget_terms")
    acme = cast.acme.id
    await orm(budget_set)(acme, acme, scope=BudgetScope.ORGANIZATION, limit_nano=300)
    assert room(cast) == 400
    assert rows("SELECT began_at, carried FROM budget_terms") == before
    await orm(plan)(cast, 300, period="week", zone=noon_zone())
    assert room(cast) == 300


async def test_a_reversal_makes_room_in_the_period_that_runs(
    ledger: PostgresLedger, cast: Cast
) -> None:
    await orm(plan)(cast, 100, period="day", zone=noon_zone())
    hold = await spend(ledger, cast, 90)
    await orm(reverse)(hold, 50, organization=cast.acme.id, credit=f"receivable:{cast.acme.id}")
    assert room(cast) == 60
    await orm(yesterday)(cast)
    await orm(services.turn_budgets)()
    assert room(cast) == 100
    assert "BREACHES" not in await orm(verified)()


async def test_a_reversal_of_an_earlier_period_makes_no_room_in_this_one(
    ledger: PostgresLedger, cast: Cast
) -> None:
    await orm(plan)(cast, 100, period="day", zone=noon_zone())
    hold = await spend(ledger, cast, 90)
    await orm(yesterday)(cast)
    await orm(services.turn_budgets)()
    await spend(ledger, cast, 20)
    await orm(reverse)(hold, 50, organization=cast.acme.id, credit=f"receivable:{cast.acme.id}")
    assert room(cast) == 80
    assert "BREACHES" not in await orm(verified)()


async def test_two_workers_turn_a_budget_once(ledger: PostgresLedger, cast: Cast) -> None:
    await orm(plan)(cast, 100, period="day", zone=noon_zone())
    due = rows("SELECT budget, began_at, turns_at FROM budget_terms")[0]
    await orm(yesterday)(cast)
    call = "SELECT ledger_budget_turn(%s, %s, %s, %s) FROM set_config('app.orgs', %s, true)"
    budget, began, turns = due
    scope = "{" + str(cast.acme.id) + "}"
    assert rows(call, budget, began, began, turns, scope) == [(True,)]
    assert rows(call, budget, began, began, turns, scope) == [(False,)]


async def test_alerts_are_raised_once_and_mailed(ledger: PostgresLedger, cast: Cast) -> None:
    await orm(plan)(cast, 100, period="day", zone=noon_zone(), alerts=(90, 50, 80))
    await spend(ledger, cast, 49)
    assert await orm(budgets_tell)() == 0
    await spend(ledger, cast, 31)
    assert await orm(budgets_tell)() == 2
    assert await orm(budgets_tell)() == 0
    (letter,) = mail.outbox
    assert letter.to == [cast.alice.email]
    assert "80 % of the budget of organization Acme" in letter.subject
    # A higher limit can be reached again; a new period too.
    await orm(plan)(cast, 120, period="day", zone=noon_zone(), alerts=(50, 80))
    await spend(ledger, cast, 20)
    assert await orm(budgets_tell)() == 1
    await orm(yesterday)(cast)
    await orm(services.turn_budgets)()
    await spend(ledger, cast, 60)
    assert await orm(budgets_tell)() == 1
    mail.outbox.clear()


async def test_messages_name_what_a_budget_is_of(cast: Cast) -> None:
    def names() -> set[str]:
        make_models("small")
        key = apikey_create(actor=cast.alice, project=cast.project, label="nightly").key
        draft = BudgetDraft(allowance_nano=100)
        part = services.ProjectPart(cast.project, "small")
        for subject in (cast.acme, cast.project, key, part):
            budget_plan(actor=cast.alice, subject=subject, draft=draft)
        with organization_scope([cast.acme.id]):
            return {services.budget_name(one) for one in Budget.objects.all()}

    assert await orm(names)() == {
        "organization Acme", "project web", "key nightly", "model small in project web",
    }  # fmt: skip


async def test_a_rotated_key_spends_from_the_first_keys_period(
    ledger: PostgresLedger, cast: Cast
) -> None:
    def keys() -> tuple[uuid.UUID, uuid.UUID]:
        made = [
            apikey_create(actor=cast.alice, project=cast.project, label=label).key
            for label in ("old", "new")
        ]
        budget_plan(
            actor=cast.alice, subject=made[0], draft=BudgetDraft(allowance_nano=100, period="day")
        )
        rows("UPDATE api_keys SET limits_of_id = %s WHERE id = %s", made[0].id, made[1].id)
        return made[0].id, made[1].id

    first, second = await orm(keys)()
    rows("UPDATE budget_terms SET period = 'day', zone = %s", noon_zone())
    spent = "SELECT ledger_spent_since('key', %s, %s, now() - interval '1 hour')"
    hold = make_hold(0, organization=cast.acme.id)
    charged = settlement_of(hold, 30)
    await ledger.settle(type(charged)(**{**_fields(charged), "key": second.hex}))
    assert rows(spent, first, cast.acme.id) == [(30,)]
    assert rows(spent, second, cast.acme.id) == [(30,)]


def _fields(record: Any) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__struct_fields__}


def test_only_who_may_sets_a_budget(database: str) -> None:
    cast = make_cast()
    draft = BudgetDraft(allowance_nano=1)
    with pytest.raises(PermissionDenied):
        budget_plan(actor=cast.bob, subject=cast.acme, draft=draft)
    with pytest.raises(ObjectDoesNotExist):
        budget_plan(actor=cast.charlie, subject=cast.project, draft=draft)
    with pytest.raises(PermissionDenied):
        budget_end(actor=cast.bob, subject=cast.acme)
    assert rows("SELECT count(*) FROM budgets") == [(0,)]


def test_a_budget_ends(database: str) -> None:
    cast = make_cast()
    plan(cast, 100, period="day")
    budget_end(actor=cast.alice, subject=cast.acme)
    assert rows("SELECT lim FROM budgets") == [(4 * 10**18,)]
    actions = rows("SELECT action FROM audit_entries WHERE action ~ '^budget' ORDER BY id")
    assert actions == [("budget.set",), ("budget.end",)]


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("allowance", {"allowance": -1}),
        ("allowance", {"allowance": 4 * 10**18}),
        ("period", {"period": "year"}),
        ("zone", {"zone": "Mars/Base"}),
        ("rollover", {"rollover": True}),
        ("alerts", {"alerts": (0,)}),
        ("alerts", {"alerts": (1_001,)}),
        ("alerts", {"alerts": (50, 50)}),
        ("alerts", {"alerts": tuple(range(1, 12))}),
    ],
)
def test_what_no_budget_can_be_names_its_field(
    database: str, field: str, wrong: dict[str, Any]
) -> None:
    cast = make_cast()
    with pytest.raises(ValidationError) as raised:
        plan(cast, wrong.pop("allowance", 5), **wrong)
    assert list(raised.value.message_dict) == [field]
