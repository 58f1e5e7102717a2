"""The Spend page: its sums are the ledger's; its forecast and days to a limit by hand."""

from __future__ import annotations

import csv
import io
import re
import uuid
from datetime import UTC, date, datetime, timedelta

import pytest
from django.test import Client

from controlplane.billing.budgets.selectors import BudgetRow
from controlplane.billing.ledger.services import seal_ledger
from controlplane.billing.ledger.spend import forecast_nano, hour_after, spend_rates, spend_read
from controlplane.core.audit.entries import OPERATOR
from controlplane.core.permissions import Role
from controlplane.kernel.money import NANO_PER_USD, usd_text
from controlplane.tenants.people.services import membership_set
from controlplane.tenants.sign_in.accounts import user_create
from frontend.money.spend_figures import budget_uses, day_bars
from frontend.shared.formats import change_words
from tests.browser.history import write_history
from tests.support.month import END, START, Month, seal_month, seed_month
from tests.support.people import make_cast, signed_in

MONTH = f"{START:%Y-%m}"
TODAY = date(2026, 11, 20)


@pytest.fixture
def month(database: str) -> Month:
    """A month of charges of which no line is sealed yet."""
    return seed_month(make_cast())


def _table(client: Client, panel: str) -> list[dict[str, str]]:
    answer = client.get(f"/spend/{panel}.csv?month={MONTH}")
    assert answer.status_code == 200
    return list(csv.DictReader(io.StringIO(answer.content.decode())))


@pytest.mark.parametrize("sealed", [False, True])
def test_every_panel_adds_up_to_the_ledger_sealed_or_not(month: Month, sealed: bool) -> None:
    if sealed:
        seal_month()
    acme = month.cast.acme.id
    charged = month.charged(acme)
    alice = signed_in(month.cast.alice)
    text = alice.get(f"/spend?month={MONTH}").content.decode()
    assert f'title="${usd_text(charged)}"' in text
    for panel in ("days", "project", "key", "model"):
        assert sum(int(row["nano_usd"]) for row in _table(alice, panel)) == charged, panel
    models = {row["name"]: int(row["nano_usd"]) for row in _table(alice, "model")}
    assert models == month.sums(acme, lambda line: line.model)
    days = {row["day"]: int(row["nano_usd"]) for row in _table(alice, "days")}
    booked = month.sums(acme, lambda line: line.booked_at.astimezone(UTC).date().isoformat())
    assert {day: nano for day, nano in days.items() if nano} == booked
    # Lines are rounded one by one, so the kinds may be apart from their sum by half of each.
    kinds = sum(int(row["nano_usd"]) for row in _table(alice, "tokens"))
    assert abs(kinds - charged) <= len(month.posted(acme)) / 2 + 3


def test_the_month_shown_stands_between_its_neighbours(month: Month) -> None:
    text = signed_in(month.cast.alice).get(f"/spend?month={MONTH}").content.decode()
    picker = " ".join(re.sub(r"<[^>]*>", " ", text.partition('aria-label="Month"')[2]).split())
    assert picker.startswith("> ← 2025-09 2025-10 2025-11 →")


def test_half_sealed_counts_every_line_once(month: Month) -> None:
    seal_ledger(START + (END - START) / 2)
    alice = month.cast.alice
    spent = spend_read(actor=alice, organization=month.cast.acme.id, start=START, end=END)
    assert spent.sealed is not None and START < spent.sealed < END
    assert spent.nano == sum(spent.days.values()) == month.charged(month.cast.acme.id)


@pytest.mark.parametrize("sealed", [START, END])
def test_hours_on_both_sides_of_midnight_are_of_two_days(month: Month, sealed: datetime) -> None:
    seal_ledger(sealed)
    midnight, hour = START + timedelta(days=9), timedelta(hours=12)
    spent = spend_read(
        actor=month.cast.alice,
        organization=month.cast.acme.id,
        start=midnight - hour,
        end=midnight + hour,
    )
    assert list(spent.days) == [midnight.date() - timedelta(days=1), midnight.date()]
    assert spent.nano == sum(spent.days.values()) and all(spent.days.values())


def test_what_was_charged_just_now_is_there_at_once(month: Month) -> None:
    seal_month()
    cast, key = month.cast, month.payers[0].key
    requests = write_history(cast, key, "alpha")
    now = datetime.now(UTC)
    end = hour_after(now)
    spent = spend_read(
        actor=cast.alice, organization=cast.acme.id, start=end - timedelta(hours=2), end=end
    )
    assert 300 < sum(line.requests for line in spent.lines) <= len(requests)
    rates = spend_rates(actor=cast.alice, organization=cast.acme.id, now=now)
    assert rates == {}
    seal_ledger(datetime.now(UTC))
    rates = spend_rates(actor=cast.alice, organization=cast.acme.id, now=now)
    assert rates[key.id] == rates[cast.acme.id] == spent.nano // 7
    text = signed_in(cast.alice).get("/spend").content.decode()
    assert "needs one full day of charges" in text
    assert "nightly summaries" in text


def test_it_opens_empty_and_says_what_to_do(database: str) -> None:
    text = signed_in(make_cast().alice).get("/spend").content.decode()
    assert "No charges in" in text and "No budget is set" in text
    assert "not yet; a job runs every hour" in text


def test_only_who_may_see_the_ledger_sees_it(month: Month) -> None:
    finance = user_create(actor=OPERATOR, email="fin@example.org")
    cast = month.cast
    membership_set(actor=cast.alice, organization=cast.acme, user=finance, role=Role.FINANCE)
    assert signed_in(finance).get("/spend").status_code == 200
    assert signed_in(cast.bob).get("/spend").status_code == 403
    other = signed_in(cast.charlie).get(f"/spend/project.csv?month={MONTH}").content.decode()
    assert "web" not in other


@pytest.mark.parametrize(
    ("query", "told"),
    [("month=2026-13", "Use a month such as"), ("month=2999-01", "has not started")],
)
def test_a_month_that_cannot_be_shown_is_told(month: Month, query: str, told: str) -> None:
    alice = signed_in(month.cast.alice)
    assert told in alice.get(f"/spend?{query}").content.decode()
    assert alice.get(f"/spend/days.csv?{query}").status_code == 400
    assert alice.get("/spend/none.csv").status_code == 404


def test_a_forecast_goes_on_as_the_last_whole_days() -> None:
    days = {TODAY - timedelta(days=number): 10 for number in range(1, 8)}
    first, until = date(2026, 11, 1), date(2026, 12, 1)
    # 7 days of 10, today at least as the mean, ten days to come.
    assert forecast_nano(days, start=first, today=TODAY, until=until) == 70 + 10 + 100
    assert forecast_nano({**days, TODAY: 25}, start=first, today=TODAY, until=until) == 195
    # On the second of a month only one of the seven is the month's own.
    early = {date(2026, 11, 2) - timedelta(days=number): 10 for number in range(1, 8)}
    assert forecast_nano(early, start=first, today=date(2026, 11, 2), until=until) == 300


def test_days_before_the_first_charge_are_no_pace() -> None:
    days = {TODAY - timedelta(days=2): 30, TODAY - timedelta(days=1): 0}
    until = TODAY + timedelta(days=1)
    assert forecast_nano(days, start=TODAY, today=TODAY, until=until) == 15
    assert forecast_nano({TODAY: 5}, start=TODAY, today=TODAY, until=until) is None


def test_an_idle_day_a_week_ago_counts_once_there_were_charges() -> None:
    sunday = date(2026, 11, 22)
    days = {
        day: 70
        for day in (date(2026, 11, 1) + timedelta(days=number) for number in range(21))
        if day.isoweekday() <= 5
    }
    until = date(2026, 12, 1)
    # Five of the last seven days had 70: 50 a day, for nine days.
    assert forecast_nano(days, start=date(2026, 11, 1), today=sunday, until=until) == (
        15 * 70 + 9 * 50
    )


NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


def _budget(room: int, *, turns_at: datetime | None = None) -> BudgetRow:
    return BudgetRow(
        id=uuid.UUID(int=1), scope="project", allowance=100, carried=0, spent=100 - room, held=0,
        room=room, period="month", zone="UTC", rollover=False, began_at=None, turns_at=turns_at,
        alerts=[], raised=[],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("room", "rate", "turns_in_days", "words"),
    [
        (50, 10, None, "in 5.0 days"),
        (50, 100, None, "within a day"),
        (50, 10, 4, "not before reset"),
        (50, 10, 6, "in 5.0 days"),
        (50, 0, 6, "no recent spend"),
        (0, 10, 6, "exhausted: requests are refused"),
        (10**9, 1, None, "in over a year"),
    ],
)
def test_days_to_a_limit(room: int, rate: int, turns_in_days: int | None, words: str) -> None:
    turns = None if turns_in_days is None else NOW + timedelta(days=turns_in_days)
    row = _budget(room, turns_at=turns)
    (use,) = budget_uses([row], names={}, rates={row.id: rate}, now=NOW)
    assert use.ahead == words


def test_changes_and_bars_are_told_as_they_are() -> None:
    assert change_words(15, 10) == "+50.0 %"
    assert change_words(5, 10) == "−50.0 %"
    assert change_words(5, 0) == "–"
    bars = day_bars({TODAY: NANO_PER_USD, TODAY - timedelta(days=1): NANO_PER_USD // 2})
    assert [bar.height for bar in bars] == [50.0, 100.0]
    assert bars[0].left + bars[0].width < bars[1].left
