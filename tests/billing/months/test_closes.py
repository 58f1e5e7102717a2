"""Closing a month: what it takes, what it keeps, and that nothing comes into it afterwards."""

from __future__ import annotations

import io
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from django.core.exceptions import PermissionDenied, ValidationError
from django.core.management import call_command

from controlplane.billing.ledger import accounts, reconcile
from controlplane.billing.ledger.reconcile import reconcile_requests
from controlplane.billing.months import closes
from controlplane.billing.months.closes import (
    DueClose,
    period_close_ask,
    period_close_now,
    period_close_run,
    period_closes_due,
)
from controlplane.billing.months.models import PeriodClose, PeriodCloseJob
from controlplane.billing.months.periods import Period, PeriodState, close_of, period_of, state_of
from controlplane.kernel.ids import public_id
from controlplane.tenants.models import User
from tests.support.money import rows
from tests.support.month import END, MICROSECOND, PERIOD, START, Month, seal_month, seed_month
from tests.support.people import Cast, make_cast, signed_in

OCTOBER = Period(PERIOD)
JSON = "application/json"


@pytest.fixture
def month(database: str) -> Month:
    seeded = seed_month(make_cast())
    seal_month()
    return seeded


def add_record(month: Month, request: uuid.UUID, **changed: int) -> None:
    """The record of a charged request, as its gateway would have written it."""
    found = [line for line in month.lines if line.request == request and line.posts]
    facts = {
        "cost": sum(line.amount for line in found),
        "prompt": sum(line.counts.uncached + line.counts.cached for line in found),
        "output": sum(line.counts.output for line in found),
    } | changed
    day = datetime.fromtimestamp((request.int >> 80) / 1000, UTC).date()
    rows("SELECT telemetry_make_partitions(%s, %s)", day, day)
    rows(
        "INSERT INTO request_records VALUES (%s, %s, %s, %s, %s, %s, 1, 1, %s, 0, %s, 200, false,"
        " %s, '', '', '', '', '', '', '', '', '', '')",
        request,
        found[0].organization,
        found[0].project,
        found[0].key,
        found[0].booked_at,
        facts["cost"],
        facts["prompt"],
        facts["output"],
        found[0].model,
    )


def charged(month: Month) -> uuid.UUID:
    """One of Acme's requests of the second week that was settled by itself."""
    return next(
        line.request
        for line in month.posted(month.cast.acme.id)
        if line.kind == "settle" and line.booked_at > START + timedelta(days=8)
    )


def test_a_closed_month_has_its_totals_and_a_hash(month: Month) -> None:
    cast = month.cast
    made = period_close_now(actor=cast.alice, organization=cast.acme.id, period=OCTOBER)
    entries = [
        entry
        for entry in month.entries
        if entry.organization == cast.acme.id and START <= entry.booked_at < END
    ]
    total = month.charged(cast.acme.id) + sum(entry.amount for entry in entries)
    owed = accounts.receivable(cast.acme.id)
    debited, credited = made.totals[owed]
    assert credited == sum(entry.amount for entry in entries if entry.credit == owed)
    assert debited - month.charged(cast.acme.id) == sum(
        entry.amount for entry in entries if entry.debit == owed
    )
    assert sum(debit for debit, _ in made.totals.values()) == total
    assert sum(credit for _, credit in made.totals.values()) == total
    in_it = [
        line
        for line in month.lines
        if line.organization == cast.acme.id and START <= line.booked_at < END
    ]
    assert (made.transfers, made.entries) == (len(in_it), len(entries))
    assert made.last_booked_at == END - MICROSECOND
    assert period_close_now(actor=cast.alice, organization=cast.acme.id, period=OCTOBER) == made
    assert state_of(cast.acme.id, OCTOBER) == PeriodState.CLOSED
    assert state_of(cast.other.id, OCTOBER) == PeriodState.CLOSING
    audited = rows("SELECT actor_label FROM audit_entries WHERE action = 'period.close'")
    assert audited == [(cast.alice.actor_label,)]
    other = period_close_now(actor=cast.charlie, organization=cast.other.id, period=OCTOBER)
    assert bytes(other.digest) != bytes(made.digest)


def test_the_verifier_reads_a_closed_month_again(month: Month) -> None:
    period_close_now(actor=month.cast.alice, organization=month.cast.acme.id, period=OCTOBER)
    assert "BREACHES" not in _verified()
    rows("ALTER TABLE period_closes DISABLE TRIGGER USER")
    rows("UPDATE period_closes SET digest = sha256('')")
    assert "does not match what was closed" in _verified()


def _verified() -> str:
    out = io.StringIO()
    call_command("verify_ledger", stdout=out)
    return out.getvalue()


def test_nothing_is_booked_into_a_closed_month(month: Month) -> None:
    acme = month.cast.acme.id
    insert = (
        "INSERT INTO journal_entries (id, organization, kind, debit, credit, amount, reason,"
        " reference, idempotency, actor_label, approved_by, booked_at, payload_hash)"
        " VALUES (gen_random_uuid(), %s, 'credit', 'promo:x', 'rounding', 1, 'r', '',"
        " gen_random_uuid()::text, 'me', '', %s, sha256(''))"
    )
    rows(insert, acme, END - MICROSECOND)
    period_close_now(actor=month.cast.alice, organization=acme, period=OCTOBER)
    for moment in (START, END - MICROSECOND):
        with pytest.raises(psycopg.errors.RestrictViolation, match="is closed"):
            rows(insert, acme, moment)
    rows(insert, acme, END)
    rows(insert, month.cast.other.id, START)


@pytest.mark.parametrize(
    "statement", ["UPDATE {} SET entries = 9", "DELETE FROM {}", "TRUNCATE {}"]
)
def test_a_close_is_for_good(month: Month, statement: str) -> None:
    period_close_now(actor=month.cast.alice, organization=month.cast.acme.id, period=OCTOBER)
    with pytest.raises(psycopg.errors.RestrictViolation, match="append-only"):
        rows(statement.format("period_closes"))


def test_a_month_that_runs_or_is_not_sealed_stays_open(database: str) -> None:
    cast = make_cast()
    now = period_of(datetime.now(UTC))
    with pytest.raises(ValidationError, match="it has not ended"):
        period_close_now(actor=cast.alice, organization=cast.acme.id, period=now)
    seed_month(cast)
    with pytest.raises(ValidationError, match="not every line of it is sealed"):
        period_close_now(actor=cast.alice, organization=cast.acme.id, period=OCTOBER)
    with pytest.raises(PermissionDenied):
        ask(cast, cast.bob)


def close_september(cast: Cast) -> None:
    """Months are closed in order, and September has lines, too."""
    period_close_now(actor=cast.alice, organization=cast.acme.id, period=OCTOBER.before)


def test_months_close_in_order_from_the_first_that_has_anything(month: Month) -> None:
    cast = month.cast
    with pytest.raises(ValidationError, match="Close 2025-09 first"):
        ask(cast, cast.alice)
    with pytest.raises(ValidationError, match="There are no entries before 2025-09"):
        period_close_ask(
            actor=cast.alice,
            organization=cast.acme.id,
            period=Period("2025-08"),
            enqueue=lambda *due: None,
        )
    close_september(cast)
    assert isinstance(ask(cast, cast.alice), PeriodClose)


def ask(
    cast: Cast, actor: User, handed: list[DueClose] | None = None
) -> PeriodClose | PeriodCloseJob:
    """Close October by whatever way is right for it; what is handed to workers is listed."""
    return period_close_ask(
        actor=actor,
        organization=cast.acme.id,
        period=OCTOBER,
        enqueue=lambda *due: None if handed is None else handed.append(DueClose(*due)),
    )


def test_a_large_month_is_closed_by_a_worker_which_tells_how_far_it_is(
    month: Month, monkeypatch: pytest.MonkeyPatch
) -> None:
    close_september(month.cast)
    monkeypatch.setattr(closes, "CLOSE_AT_ONCE_REQUESTS", 100)
    monkeypatch.setattr(closes, "_LINES", closes._LINES.replace("LIMIT 5000", "LIMIT 5"))
    monkeypatch.setattr(closes, "PAGE_ROWS", 5)
    cast, handed = month.cast, list[DueClose]()
    job, again = ask(cast, cast.alice, handed), ask(cast, cast.alice, handed)
    assert isinstance(job, PeriodCloseJob) and again == job
    assert set(handed) == {DueClose(cast.acme.id, job.id)} == set(period_closes_due())
    shown = signed_in(cast.alice).get("/ledger/months").content.decode()
    assert "being closed" in shown and 'hx-trigger="every 2s"' in shown
    # One worker is cut off in its second page; the next begins anew once its claim has run out.
    reached: list[datetime] = []

    def cut_off(row: PeriodCloseJob, **values: Any) -> bool:
        if values["reached_at"] is not None:
            reached.append(values["reached_at"])
        if len(reached) == 2:
            raise KeyboardInterrupt
        return save(row, **values)

    save = closes._save
    monkeypatch.setattr(closes, "_save", cut_off)
    with pytest.raises(KeyboardInterrupt):
        period_close_run(handed[0])
    monkeypatch.setattr(closes, "_save", save)
    assert START <= reached[0] < reached[1] < END
    told = 'read up to <time datetime="2025-10-01'
    assert told in signed_in(cast.alice).get("/ledger/months").content.decode()
    assert (period_close_run(handed[0]), period_closes_due()) == (None, [])
    rows("UPDATE period_close_jobs SET claimed_until = now() - interval '1 second'")
    assert period_closes_due() == [handed[0]]
    done = period_close_run(handed[0])
    assert done is not None and (done.state, done.error) == ("done", "")
    closed = ask(cast, cast.alice)
    assert isinstance(closed, PeriodClose) and closed.closed_by == cast.alice.actor_label
    assert period_closes_due() == []
    assert "hx-trigger" not in signed_in(cast.alice).get("/ledger/months").content.decode()


def test_a_claim_is_kept_while_comparing_and_one_given_up_is_over(
    month: Month, monkeypatch: pytest.MonkeyPatch
) -> None:
    close_september(month.cast)
    monkeypatch.setattr(closes, "CLOSE_AT_ONCE_REQUESTS", 100)
    ask(month.cast, month.cast.alice)
    (due,) = period_closes_due()
    claimed: list[datetime] = []
    compare = reconcile._compare

    def watched(*window: Any) -> Any:
        claimed.append(rows("SELECT claimed_until FROM period_close_jobs")[0][0])
        if len(claimed) == 5:
            rows("UPDATE period_close_jobs SET tries = 5, claimed_until = now() - interval '1 s'")
            assert period_close_run(due) is None
        return compare(*window)

    monkeypatch.setattr(reconcile, "_compare", watched)
    assert period_close_run(due) is None
    assert len(claimed) == 5 and claimed == sorted(set(claimed))
    assert rows("SELECT state FROM period_close_jobs") == [("failed",)]


def test_what_a_worker_finds_wrong_is_told_and_may_be_asked_again(
    month: Month, monkeypatch: pytest.MonkeyPatch
) -> None:
    close_september(month.cast)
    monkeypatch.setattr(closes, "CLOSE_AT_ONCE_REQUESTS", 100)
    add_record(month, _unbooked(month, charged(month)))
    client, path = signed_in(month.cast.alice), f"periods/{PERIOD}/close"
    base = f"/api/billing/organizations/{month.cast.acme.id}/"
    key = {"Idempotency-Key": "one"}
    first, again = (client.post(base + path, {}, JSON, headers=key) for _ in range(2))
    assert (first.status_code, first.json()["job"]["state"]) == (202, "waiting")
    assert again.content == first.content and again["Idempotency-Replayed"] == "true"
    (due,) = period_closes_due()
    done = period_close_run(due)
    assert done is not None and done.state == "failed"
    assert "found 1 difference" in client.get("/ledger/months").content.decode()
    assert close_of(month.cast.acme.id, OCTOBER) is None
    assert client.post(base + path).json()["job"]["state"] == "waiting"


def test_what_is_recorded_and_not_booked_keeps_a_month_open(month: Month) -> None:
    acme, request = month.cast.acme.id, charged(month)
    add_record(month, request)
    found = reconcile_requests(acme, START, END)
    assert (found.findings, found.unaccounted_tokens) == (0, 0)
    add_record(month, _unbooked(month, request))
    with pytest.raises(ValidationError, match="found 1 difference"):
        period_close_now(actor=month.cast.alice, organization=acme, period=OCTOBER)
    assert close_of(acme, OCTOBER) is None
    last = rows(
        "SELECT findings, unaccounted_tokens, examples->-1->>'kind' FROM reconciliations"
        " ORDER BY made_at DESC LIMIT 1"
    )[0]
    assert last[0] == 1
    assert last[1] > 0


def _unbooked(month: Month, like: uuid.UUID) -> uuid.UUID:
    """An id of the same hour that is on no line; the lines of `like` are told of it, too."""
    request = uuid.UUID(int=like.int ^ 1)
    month.lines.extend(
        line._replace(request=request) for line in list(month.lines) if line.request == like
    )
    return request


@pytest.mark.parametrize(
    ("kind", "changed"),
    [("unequal", {"cost": 1}), ("unequal", {"output": 10**6}), ("unequal", {"prompt": 10**6})],
)
def test_a_record_that_differs_is_named(month: Month, kind: str, changed: dict[str, int]) -> None:
    acme, request = month.cast.acme.id, charged(month)
    add_record(month, request, **changed)
    found = reconcile_requests(acme, START, END)
    (named,) = [one for one in found.examples if not one["explained"]]
    assert (named["kind"], named["first"][0]["subject"]) == (kind, public_id("req", request))
    assert found.unaccounted_nano + found.unaccounted_tokens > 0


def test_what_explains_itself_is_told_and_counts_for_nothing(month: Month) -> None:
    acme = month.cast.acme.id
    found = reconcile_requests(acme, START, END)
    assert {one["kind"] for one in found.examples} == {"unrecorded", "lost_report"}
    assert (found.findings, found.unaccounted_tokens, found.unaccounted_nano) == (0, 0, 0)
    asked = {line.request for line in month.lines if line.organization == acme}
    in_it = [one for one in asked if START.timestamp() <= (one.int >> 80) / 1000 < END.timestamp()]
    assert found.requests == len(in_it)


def test_an_hour_that_is_not_its_lines_is_named(month: Month) -> None:
    acme = month.cast.acme.id
    count = "UPDATE ledger_hours SET output = output + 5 WHERE organization = %s RETURNING hour"
    changed = [hour for (hour,) in rows(count, acme) if START <= hour < END]
    found = reconcile_requests(acme, START, END)
    assert {one["kind"] for one in found.examples if not one["explained"]} == {"hour_differs"}
    assert found.unaccounted_tokens == 5 * len(changed)
    assert found.findings == len(set(changed))


def test_roll_ups_never_claim_more_than_the_ledger(month: Month) -> None:
    acme = month.cast.acme.id
    nano = rows("SELECT sum(nano)::bigint FROM ledger_hours WHERE model = 'alpha-7b'")[0][0]
    claim = (
        "INSERT INTO usage_rollups (step_s, at, organization, project, key, model, route, requests,"
        " errors, uncached, cached, output, nano)"
        " VALUES (3600, %s, %s, %s, %s, 'alpha-7b', '', 1, 0, 1000000000, 0, 0, %s)"
    )
    rows(claim, START + timedelta(days=5), acme, acme, acme, nano + 1)
    found = reconcile_requests(acme, START, END)
    (named,) = [one for one in found.examples if not one["explained"]]
    assert (named["kind"], named["first"][0]["subject"]) == ("rollup_exceeds", "alpha-7b")
