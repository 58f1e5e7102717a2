"""Marks of charts: who may know of which change, and how many there are at most."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from html import unescape
from typing import Any

import psycopg
import pytest
from django.db import transaction

from controlplane.core.audit.entries import OPERATOR, Facts, audit_record
from controlplane.fleet.services import node_credential_create
from controlplane.slos import marks
from controlplane.slos.marks import MARKS_MAX, Mark, marks_between
from frontend.shared.plots.figure import Axis, Figure, Line
from frontend.shared.plots.groups import GroupFigure
from frontend.shared.plots.marks import marked
from tests.support.money import rows, superuser_dsn
from tests.support.people import Cast, make_cast

DAY = timedelta(days=1)


@pytest.fixture
def cast(database: str) -> Cast:
    return make_cast()


def _audit(cast: Cast, action: str, detail: Facts, of: uuid.UUID | None = None) -> None:
    with transaction.atomic():
        audit_record(OPERATOR, action, subject=cast.acme, organization_id=of, detail=detail)


def _texts(cast: Cast, user: Any) -> list[str]:
    now = datetime.now(UTC)
    found = marks_between(actor=user, organization=cast.acme.id, start=now - DAY, end=now + DAY)
    return [one.text for one in found]


def test_each_sees_what_is_theirs_to_know(cast: Cast) -> None:
    _audit(cast, "ruleset.publish", {"version": 3})
    _audit(cast, "ruleset.rollback", {"version": 4})
    _audit(cast, "prompt.canary_start", {"name": "support", "version": 2}, cast.acme.id)
    _audit(cast, "prompt.publish", {"name": "secret", "version": 9}, cast.other.id)
    _audit(cast, "price.publish", {"model": "tiny", "version": 5, "project": None})
    _audit(cast, "price.publish", {"model": "tiny", "version": 6, "project": "proj_abc"})
    _audit(cast, "key.create", {"version": 1})
    node_credential_create(actor=OPERATOR, name="n1", pool="default")
    rows(
        "INSERT INTO node_starts (id, created_at, node_id, pool, epoch, cold_start_ms)"
        " SELECT gen_random_uuid(), now(), id, 'default', 'e', 5 FROM nodes"
    )
    assert _texts(cast, cast.alice) == [
        "template support 2 canary started",
        "price 5 of tiny published",
    ]
    assert _texts(cast, cast.stella) == [
        "rules 3 published",
        "rules 4 rolled back",
        "template support 2 canary started",
        "price 5 of tiny published",
        "price 6 of tiny published",
        "n1 started",
    ]


def test_gateways_of_one_minute_are_one_mark(cast: Cast) -> None:
    for name in ("a", "b"):
        rows(
            "INSERT INTO gateways (instance, url, started_at, heartbeat_at, share_of)"
            " VALUES (%s, '', date_trunc('hour', now()) + interval '3 s', now(), 0)",
            name,
        )
    assert _texts(cast, cast.alice) == ["2 gateways started"]


def test_no_more_are_drawn_than_can_be_told_apart(cast: Cast) -> None:
    for version in range(MARKS_MAX + 3):
        _audit(cast, "price.publish", {"model": "tiny", "version": version, "project": None})
    texts = _texts(cast, cast.alice)
    assert len(texts) == MARKS_MAX and texts[-1] == f"price {MARKS_MAX + 2} of tiny published"


def test_a_chart_does_without_marks_that_take_too_long(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    _audit(cast, "price.publish", {"model": "tiny", "version": 1, "project": None})
    assert len(_texts(cast, cast.alice)) == 1
    monkeypatch.setattr(marks, "MS_MAX", 20)
    with psycopg.connect(superuser_dsn()) as stall:
        stall.execute("LOCK TABLE gateways IN ACCESS EXCLUSIVE MODE")
        assert _texts(cast, cast.alice) == []
        stall.rollback()


def test_what_others_chose_is_no_markup_in_a_chart() -> None:
    chosen = '<b>you & me</b> <a href="https://example.org">x</a>'
    at = datetime(2026, 11, 1, 12, tzinfo=UTC)
    axis, line = Axis("ms"), Line(chosen, [1, 2], "--link")
    over_time = marked(
        Figure("f", "F", "", [at, at + DAY], [line], axis).as_json(), [Mark(at, chosen)]
    )
    groups = GroupFigure("g", "G", "", [chosen, "b"], [1, 2], [line], axis, "End user")
    told = [over_time["data"][0]["name"], over_time["layout"]["annotations"][0]["hovertext"]]
    told += [groups.as_json()["data"][0]["name"], groups.as_json()["data"][0]["x"][0]]
    for text in told:
        assert "<" not in text and unescape(text) == chosen
    assert groups.rows()[0][0] == chosen, "pages escape what is in tables"


def test_a_chart_over_time_gets_its_lines_numbered() -> None:
    at = datetime(2026, 11, 1, 12, tzinfo=UTC)
    figure = Figure("f", "F", "", [at, at + DAY], [Line("l", [1, 2], "--link")], Axis("ms"))
    plain = figure.as_json()
    made = marked(plain, [Mark(at, "rules 3 published"), Mark(at + DAY, "n1 started")])
    assert [one["x0"] for one in made["layout"]["shapes"]] == [
        "2026-11-01T12:00:00",
        "2026-11-02T12:00:00",
    ]
    texts = [(one["text"], one["hovertext"]) for one in made["layout"]["annotations"]]
    assert texts == [("1", "rules 3 published"), ("2", "n1 started")]
    assert marked(plain, []) == plain and "shapes" not in plain["layout"]
    other = {"layout": {"xaxis": {"type": "category"}, "margin": {}}}
    assert marked(other, [Mark(at, "x")]) == other
