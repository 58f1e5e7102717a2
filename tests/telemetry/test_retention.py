"""Retention keeps up with what is written."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from pytest import MonkeyPatch

from controlplane.telemetry import services
from controlplane.telemetry.rollups import TIERS
from controlplane.telemetry.services import EXEMPLAR_DAYS
from tests.support.money import ORG_A, PROJECT_A, rows

BITE, OLD, YOUNG = 50, 230, 20
NOW = datetime.now(UTC)
HISTOGRAMS = """
    INSERT INTO histogram_rollups (step_s, at, organization, project, measure, model,
                                   route, pool, region, prompt_bucket, status_class, data)
    SELECT %s, %s, %s, %s, 'total', 'm' || n, '', '', '', 0, 2, ''
    FROM generate_series(1, %s) AS n"""
EXEMPLARS = """
    INSERT INTO exemplars (organization, project, measure, model, octave, at, value_us, request)
    SELECT %s, %s, 'total', 'm' || n, 1, %s, 1, gen_random_uuid()
    FROM generate_series(1, %s) AS n"""


@pytest.mark.usefixtures("database")
def test_rows_are_dropped_bite_by_bite_until_only_young_ones_are_left(
    monkeypatch: MonkeyPatch,
) -> None:
    monkeypatch.setattr(services, "ROWS_DELETED_MAX", BITE)
    for age, count in ((1, OLD), (-1, YOUNG)):
        for tier in TIERS:
            at = NOW - timedelta(days=tier.keep_days + age)
            rows(HISTOGRAMS, tier.step_s, at, ORG_A, PROJECT_A, count)
        rows(EXEMPLARS, ORG_A, PROJECT_A, NOW - timedelta(days=EXEMPLAR_DAYS + age), count)
    assert services.drop_old_partitions(NOW) == OLD * (len(TIERS) + 1)
    assert rows("SELECT count(*) FROM histogram_rollups") == [(YOUNG * len(TIERS),)]
    assert rows("SELECT count(*) FROM exemplars") == [(YOUNG,)]
    assert services.drop_old_partitions(NOW) == 0
