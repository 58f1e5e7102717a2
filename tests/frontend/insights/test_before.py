"""Insights beside the days before, through Django's client: findings of keys, and the stage map."""

from __future__ import annotations

import csv
import io
import uuid
from datetime import UTC, datetime, timedelta

import pytest

from controlplane.insights.hygiene import KeyHygiene, Waste, WasteTotals
from controlplane.insights.stage_map import stage_map_read
from controlplane.kernel.histogram import Histogram
from controlplane.kernel.insights.fixes import OTHER
from controlplane.kernel.insights.hygiene import DEAD_JSON, KINDS, RETRY
from controlplane.telemetry.selectors import EVERYONE
from controlplane.telemetry.tiers import DAY_S, HOUR_S, QUARTER_S
from controlplane.tenants.keys import apikey_create
from frontend.insights.days import days_asked
from frontend.insights.views import key_rows
from tests.support.money import rows
from tests.support.people import Cast, make_cast, signed_in
from tests.support.records import make_record
from tests.support.traffic import store

DAY = timedelta(days=1)


@pytest.fixture
def cast(database: str) -> Cast:
    """Acme's key: of 10 requests today 4 had dead JSON; yesterday 2 had, and 5 were retries."""
    made = make_cast()
    key = apikey_create(actor=made.alice, project=made.project, label="nightly").key.id
    now = datetime.now(UTC)
    for at, kind, requests in (
        (now, "looked", 10), (now, DEAD_JSON, 4), (now - DAY, "looked", 20),
        (now - DAY, DEAD_JSON, 2), (now - DAY, RETRY, 5),
    ):  # fmt: skip
        rows(
            "INSERT INTO hygiene_hours VALUES (date_trunc('hour', %s), %s, %s, %s, %s, 'm', %s,"
            " %s, %s, %s)",
            at, uuid.uuid4(), made.acme.id, made.project.id, key, kind,
            requests, requests * 10, requests * 1_000,
        )  # fmt: skip
    store([make_record(total_us=90_000)])
    return made


def table(content: bytes) -> list[dict[str, str]]:
    """A CSV file's rows by the names of their columns."""
    return list(csv.DictReader(io.StringIO(content.decode())))


def test_findings_stand_beside_those_of_the_days_before(cast: Cast) -> None:
    alice = signed_in(cast.alice)
    text = alice.get("/insights?days=1&compare=previous").content.decode()
    assert "before: 2 (+100 %)" in text and "before: 20 requests (-50 %)" in text
    # A finding that is no more is still told of: somebody has mended it.
    assert KINDS[RETRY][0] in text and "before: 5 (-100 %)" in text
    told = {
        row["finding"]: row
        for row in table(alice.get("/insights.csv?days=1&compare=previous").content)
    }
    assert (told[DEAD_JSON]["requests_with_it"], told[DEAD_JSON]["requests_with_it_before"]) == (
        "4", "2",
    )  # fmt: skip
    assert told[RETRY]["saves_nano_usd"] == "0" and told[RETRY]["saves_nano_before"] == "5000"
    alone = table(alice.get("/insights.csv?days=1").content)
    assert [row["finding"] for row in alone] == [DEAD_JSON]
    assert "requests_before" not in alone[0]
    assert "before:" not in alice.get("/insights?days=1").content.decode()


def test_what_is_no_longer_kept_is_not_compared_and_a_slip_is_told(cast: Cast) -> None:
    alice = signed_in(cast.alice)
    text = alice.get("/insights?days=90&compare=previous").content.decode()
    assert "Counts are kept for 90 days" in text and "before:" not in text
    assert "Cannot compare to" in alice.get("/insights?days=7&compare=never").content.decode()


def test_stages_stand_beside_themselves_in_the_days_before(cast: Cast) -> None:
    alice = signed_in(cast.alice)
    text = alice.get("/insights/stages?days=1&compare=previous").content.decode()
    assert "before: –" in text and "before: 0" in text
    told = {
        row["span"]: row
        for row in table(alice.get("/insights/stages.csv?days=1&compare=previous").content)
    }
    total = told["total"]
    assert (total["requests"], total["requests_before"], total["p50_us_before"]) == ("1", "0", "")
    assert "p50_us_before" not in table(alice.get("/insights/stages.csv?days=1").content)[0]


def test_a_day_that_is_cut_in_two_counts_for_both_sides_by_its_hours(database: str) -> None:
    midnight = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - 6 * DAY
    cut = midnight + DAY / 2
    for step_s, at, count in (
        (HOUR_S, midnight, 1), (HOUR_S, cut, 2), (QUARTER_S, midnight, 1), (QUARTER_S, cut, 2),
        (DAY_S, midnight, 3),
    ):  # fmt: skip
        recorded = Histogram({100: count}).to_bytes()
        rows(
            "INSERT INTO histogram_rollups (step_s, at, organization, project, measure, model,"
            " route, pool, region, prompt_bucket, status_class, data)"
            " VALUES (%s, %s, %s, %s, 'total', '', '', '', '', -1, -1, %s)",
            step_s, at, EVERYONE, EVERYONE, recorded,
        )  # fmt: skip
    before, after = (
        {row.name: row.count for row in stage_map_read(start=start, end=start + 3 * DAY)}["total"]
        for start in (cut - 3 * DAY, cut)
    )
    assert (before, after) == (1, 2)


def test_days_end_with_the_present_hour_and_those_before_end_where_they_begin() -> None:
    now = datetime(2026, 11, 22, 23, 59, 59, tzinfo=UTC)
    asked = days_asked({"days": "7", "compare": "previous"}, now)
    assert (asked.end, asked.start) == (datetime(2026, 11, 23, tzinfo=UTC), asked.end - 7 * DAY)
    assert asked.before == asked.end - 14 * DAY
    assert asked.query == "days=7&compare=previous" and not asked.complaint


def test_a_key_that_was_not_there_before_begins_at_nothing() -> None:
    waste = Waste(DEAD_JSON, OTHER, 1, 10, 100)
    one = KeyHygiene(uuid.uuid4(), "new", 3, 3, 30, 300, [waste])
    (shown,) = key_rows(WasteTotals(one, [one]), WasteTotals(one, []))
    assert shown.before == "before: 0 requests, $0.00" and shown.wastes[0].now == waste
    assert shown.wastes[0].requests_before == "before: 0"
