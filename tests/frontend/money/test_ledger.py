"""The pages Ledger and Budgets, and the API behind them: what is shown, set and closed."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from django.test import Client

from controlplane.billing.ledger import accounts, selectors
from controlplane.kernel.ids import public_id
from controlplane.kernel.money import usd_text
from tests.support.money import rows
from tests.support.month import ALPHA, Month, seal_month, seed_month
from tests.support.people import make_cast, signed_in

JSON = "application/json"


@pytest.fixture
def month(database: str) -> Month:
    seeded = seed_month(make_cast())
    seal_month()
    return seeded


def unconfirmed(client: Client) -> Client:
    """The same session, some time after its password was given."""
    session = client.session
    session["confirmed_at_s"] = 0
    session.save()
    return client


def api(month: Month, rest: str) -> str:
    """An address of Acme's books."""
    return f"/api/billing/organizations/{month.cast.acme.id}/{rest}"


def everything(month: Month) -> dict[str, int]:
    """Balances as the seeded lines and entries make them, by account."""
    acme = month.cast.acme.id
    found: dict[str, int] = {}

    def book(debit: str, credit: str, nano: int) -> None:
        found[debit] = found.get(debit, 0) + nano
        found[credit] = found.get(credit, 0) - nano

    for line in month.lines:
        if line.posts and line.organization == acme:
            book(accounts.receivable(acme), accounts.revenue(line.model), line.amount)
    for entry in month.entries:
        if entry.organization == acme:
            book(entry.debit, entry.credit, entry.amount)
    debit_normal = accounts.DEBIT_NORMAL
    return {
        accounts.account_text(name): nano if accounts.group_of(name) in debit_normal else -nano
        for name, nano in found.items()
    }


def test_balances_are_what_was_booked_on_the_page_and_in_the_api(month: Month) -> None:
    client = signed_in(month.cast.alice)
    told = client.get(api(month, "accounts")).json()
    wanted = everything(month)
    assert {one["account"]: one["balance_nano"] for one in told["data"]} == wanted
    page = client.get("/ledger").content.decode()
    for name, nano in wanted.items():
        kind, _, of = name.partition(":")
        assert kind.capitalize() + (f" · {of}" if of and "org_" not in of else "") in page
        assert usd_text(nano) in page
    assert "sealed up to" in page


def test_an_account_opens_to_its_charges_and_entries(
    month: Month, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The month of the tests is some time ago.
    monkeypatch.setattr(selectors, "LINE_DAYS", 20_000)
    client, acme = signed_in(month.cast.alice), month.cast.acme.id
    assert 'href="?account=revenue%3Aalpha-7b"' in client.get("/ledger").content.decode()
    page = client.get("/ledger", {"account": accounts.revenue(ALPHA)}).content.decode()
    mine = [line for line in month.posted(acme) if line.model == ALPHA]
    newest = max(mine, key=lambda line: line.request.hex)
    assert f"/requests/{public_id('req', newest.request)}" in page
    assert usd_text(newest.amount) in page and "Reconciliation" not in page
    entries = page.partition('id="entries-title"')[2]
    for entry in month.entries:
        if entry.organization == acme:
            of = accounts.revenue(ALPHA) in (entry.debit, entry.credit)
            assert (entry.reason in entries) is of, entry
    # No account of theirs, and no text that the database would refuse.
    for name in ("revenue:none", "a\0b"):
        assert "Reconciliation" in client.get("/ledger", {"account": name}).content.decode()
    strangers = signed_in(month.cast.charlie).get("/ledger", {"account": accounts.receivable(acme)})
    assert "its newest charges" not in strangers.content.decode()


def test_entries_come_a_page_at_a_time(month: Month) -> None:
    client = signed_in(month.cast.alice)
    mine = [entry for entry in month.entries if entry.organization == month.cast.acme.id]
    seen: list[str] = []
    after = ""
    while True:
        told = client.get(api(month, f"entries?limit=2{after}")).json()
        seen += [one["id"] for one in told["data"]]
        if not told["has_more"]:
            break
        after = f"&after={told['last_id']}"
    assert sorted(seen) == sorted(public_id("entry", entry.id) for entry in mine)


def test_a_month_is_closed_from_the_page_and_shows_its_hash(month: Month) -> None:
    client = signed_in(month.cast.alice)
    # The one that the page offers: the first that has lines.
    ended = "2025-09"
    assert f'<option value="{ended}">{ended}</option>' in client.get("/ledger").content.decode()
    for path in ("ledger/close", "budgets/save", "budgets/stop"):
        asked = unconfirmed(signed_in(month.cast.alice)).post(f"/{path}", {"period": ended})
        assert "confirm" in asked.headers["Location"]
    assert rows("SELECT count(*) FROM period_closes") == [(0,)]
    wrong = client.post("/ledger/close", {"period": "2025-13"}, follow=True)
    assert "Must be a month such as 2026-11" in wrong.content.decode()
    page = client.post("/ledger/close", {"period": ended}, follow=True).content.decode()
    assert f"{ended} is closed" in page
    ((digest,),) = rows("SELECT encode(digest, 'hex') FROM period_closes")
    assert digest in page
    told = {one["period"]: one for one in client.get(api(month, "periods")).json()["data"]}
    assert (told[ended]["state"], told[ended]["digest"]) == ("closed", digest)
    compared = client.get(api(month, "reconciliations")).json()["data"]
    assert [one["unaccounted_tokens"] for one in compared] == [0]


def test_a_close_is_repeated_by_its_key(month: Month) -> None:
    client = signed_in(month.cast.alice)
    path = api(month, "periods/2025-09/close")
    for again in (False, True):
        told = client.post(path, {}, JSON, headers={"Idempotency-Key": "one"})
        assert (told.status_code, told.json()["state"]) == (200, "closed")
        assert ("Idempotency-Replayed" in told.headers) is again
    assert rows("SELECT count(*) FROM period_closes") == [(1,)]


def test_a_month_that_runs_cannot_be_closed_by_the_api(month: Month) -> None:
    client = signed_in(month.cast.alice)
    ((now,),) = rows("SELECT to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM')")
    told = client.post(api(month, f"periods/{now}/close"))
    assert told.status_code == 400
    assert "has not ended" in told.json()["error"]["fields"]["period"][0]


def test_a_charge_is_given_back_by_staff_and_no_more_than_it_was(month: Month) -> None:
    line = month.posted(month.cast.acme.id)[20]
    # The id as an answer names it.
    path = api(month, f"requests/chatcmpl-{line.request.hex}/reversals")
    body: dict[str, Any] = {"nano": 5, "reason": "cut", "id": str(uuid.uuid4())}
    owner = signed_in(month.cast.alice).post(path, body, content_type=JSON)
    assert owner.status_code == 403
    staff = signed_in(month.cast.stella)
    for _ in range(2):
        made = staff.post(path, body, content_type=JSON)
        assert (made.status_code, made.json()["debit"]) == (201, f"revenue:{line.model}")
    assert rows("SELECT amount FROM journal_entries WHERE reverses = %s", line.request) == [(5,)]
    more = staff.post(path, {"nano": 10**15, "reason": "all"}, content_type=JSON)
    assert more.status_code == 400
    assert "remain to be reversed" in more.json()["error"]["fields"]["nano"][0]
    nothing = path.replace(line.request.hex, uuid.uuid4().hex)
    assert staff.post(nothing, body, content_type=JSON).status_code == 404


def test_a_budget_is_set_shown_and_taken_away(month: Month) -> None:
    client = signed_in(month.cast.alice)
    project = month.cast.project
    form = {
        "subject": str(project.id),
        "amount": "12.50",
        "period": "month",
        "zone": "Europe/Berlin",
        "alerts": "80, 50",
        "rollover": "1",
    }
    page = client.post("/budgets/save", form, follow=True).content.decode()
    assert "The budget is saved" in page
    assert f"Project {project.name}" in page
    assert "month, Europe/Berlin" in page
    found = {one["id"]: one for one in client.get(api(month, "budgets")).json()["data"]}
    told = found[public_id("proj", project.id)]
    assert (told["allowance_nano"], told["spent_nano"]) == (12_500_000_000, 0)
    assert (told["alerts"], told["rollover"]) == ([50, 80], True)
    for wrong, complaint in (
        ({"zone": "Mars"}, "Unknown time zone"),
        ({"amount": "much"}, "Must be an amount"),
        ({"alerts": "half"}, "Must be percentages"),
        ({"period": "year"}, "Period:"),
    ):
        answer = client.post("/budgets/save", form | wrong, follow=True).content.decode()
        assert complaint in answer
    client.post("/budgets/stop", {"subject": str(project.id)})
    assert project.id.hex not in client.get(api(month, "budgets")).content.decode()


def test_the_api_sets_a_budget_within_its_organization_only(month: Month) -> None:
    client = signed_in(month.cast.alice)
    body = {"allowance_nano": 10**9, "period": "week"}
    made = client.put(api(month, f"budgets/{month.cast.acme.id}"), body, content_type=JSON)
    assert (made.status_code, made.json()["scope"]) == (200, "organization")
    theirs = api(month, f"budgets/{month.cast.other_project.id}")
    assert client.put(theirs, body, content_type=JSON).status_code == 404
    assert client.delete(theirs).status_code == 404
    bad = client.put(
        api(month, f"budgets/{month.cast.acme.id}"), body | {"period": "year"}, content_type=JSON
    )
    assert list(bad.json()["error"]["fields"]) == ["period"]
    assert client.delete(api(month, f"budgets/{month.cast.acme.id}")).status_code == 204


def test_empty_books_say_what_to_do(database: str) -> None:
    client = signed_in(make_cast().alice)
    assert "No entries yet" in client.get("/ledger").content.decode()
    assert "No budget yet" in client.get("/budgets").content.decode()
