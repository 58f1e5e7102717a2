"""Requests that a rule sent to another pool than their model's count where they ran."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from controlplane.catalog.pools import PoolDraft, pool_set
from controlplane.composed.planning.plans import PlannedPool, plans_read
from controlplane.core.audit.entries import OPERATOR
from controlplane.telemetry import rollups
from tests.support.people import make_cast
from tests.support.rules import make_models
from tests.support.traffic import asked, store

STAYED, LED = 2, 18


@pytest.fixture
def found(database: str) -> dict[str, PlannedPool]:
    """Plans by pool: most requests of the model of one went to the other."""
    cast = make_cast()
    make_models("x", pool="own")
    pool_set(actor=OPERATOR, draft=PoolDraft(name="busy", task="generate"))
    store([asked(cast, "x", pool=pool) for pool in ["own"] * STAYED + ["busy"] * LED])
    rollups.roll_up()
    now = datetime.now(UTC) + timedelta(seconds=1)
    return {one.measured.pool.name: one for one in plans_read(actor=OPERATOR, now=now)}


def test_each_pool_has_what_ran_there(found: dict[str, PlannedPool]) -> None:
    assert {name: one.measured.requests for name, one in found.items()} == {
        "own": STAYED, "busy": LED, "default": 0,
    }  # fmt: skip
    own, busy = found["own"].measured.load, found["busy"].measured.load
    assert own is not None and busy is not None
    assert own.tokens_in == busy.tokens_in == 100
    assert own.tokens_out == busy.tokens_out == 50
    assert busy.per_s / own.per_s == pytest.approx(LED / STAYED)
    rates = [sum(found[name].history.values()) for name in ("own", "busy", "default")]
    assert rates[1] / rates[0] == pytest.approx(LED / STAYED) and rates[2] == 0
    assert found["busy"].bounds and not found["default"].bounds
