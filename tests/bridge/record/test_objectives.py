"""Counting for objectives: from requests to the table, once, whatever is repeated."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.bridge.metrics.page import metrics_page
from controlplane.bridge.record import objectives as module
from controlplane.bridge.record.objectives import ObjectiveCounts
from controlplane.bridge.record.recorder import PostgresRecorder
from controlplane.core.audit.entries import OPERATOR
from controlplane.kernel.objectives.counting import WatchedObjective
from controlplane.slos.models import EVERYONE
from controlplane.slos.services import objective_create
from tests.support.gateway import GatewayUnderTest
from tests.support.money import ORG_A, ORG_C, dsn, rows
from tests.support.objectives import draft
from tests.support.orm import orm
from tests.support.records import make_record


def known(**changes: Any) -> WatchedObjective:
    fields: dict[str, Any] = {
        "id": "1" * 32,
        "version": 1,
        "organization": ORG_A.hex,
        "indicator": "availability",
        "threshold": 0,
    }
    return WatchedObjective(**{**fields, **changes})


async def test_requests_become_two_integers_a_minute(database: str) -> None:
    made = await orm(objective_create)(actor=OPERATOR, organization=EVERYONE, draft=draft())
    recorder = PostgresRecorder(dsn())
    recorder.objectives.configure([known(id=made.id.hex, organization=EVERYONE.hex)])
    recorder.start()
    for status in (200, 200, 503, 400):
        recorder.record(make_record(status=status))
    assert await recorder.flush()
    recorder.record(make_record())
    assert await recorder.flush()
    await recorder.close()
    found = rows("SELECT objective, step_s, sum(good), sum(total) FROM slo_counts GROUP BY 1, 2")
    assert found == [(made.id, 60, 3, 4)]


async def test_counts_of_an_objective_that_is_gone_are_nobodys(database: str) -> None:
    recorder = PostgresRecorder(dsn())
    recorder.objectives.configure([known()])
    recorder.start()
    recorder.record(make_record())
    assert await recorder.flush()
    await recorder.close()
    assert rows("SELECT count(*) FROM slo_counts") == [(0,)]


def test_a_lost_call_is_repeated_whole() -> None:
    counts = ObjectiveCounts()
    counts.configure([known(), known(id="2" * 32, organization=ORG_C.hex)])
    counts.count(make_record())
    call = counts.next_call(b"w")
    assert call is not None and counts.next_call(b"w") is None
    sent = call.parameters()
    counts.count(make_record())
    call.lost()
    again = counts.next_call(b"w")
    assert again is not None
    assert (sent[4:], again.parameters()[4:]) == ([b"{1}", b"{1}"], [b"{2}", b"{2}"])
    assert not counts.dirty


def test_counts_have_a_bound_and_what_is_beyond_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "COUNTS_MAX", 2)
    recorder = PostgresRecorder("")
    recorder.objectives.configure([known(id=str(number) * 32) for number in range(1, 5)])
    recorder.objectives.count(make_record())
    assert recorder.objectives.dropped == 2
    told = metrics_page(GatewayUnderTest().world, recorder, ()).to_bytes().decode()
    assert "\nsluice_dropped_objective_counts_total 2\n" in told
