"""Series by one dimension, usage by where caches help, exemplars, and the steps all are read at."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any

import pytest

from controlplane.kernel.histogram import merge_all
from controlplane.telemetry import rollups, services, tiers
from controlplane.telemetry.selectors import (
    SeriesQuery,
    UsageSum,
    cache_by,
    exemplar,
    series_by,
    series_read,
)
from controlplane.telemetry.tiers import parts_by_step, parts_merged
from tests.support.money import ALICE_KEY, ORG_A, ORG_C, PROJECT_A, rows
from tests.support.records import make_record
from tests.support.traffic import store

NOW = datetime.now(UTC)
HOUR = timedelta(hours=1)


def query(organization: uuid.UUID = ORG_A, **changes: Any) -> SeriesQuery:
    fields: dict[str, Any] = {
        "organization": organization, "start": NOW - HOUR, "end": NOW + 2 * HOUR, "step_s": 300,
        "everyone": ("total", "queue"),
    }  # fmt: skip
    return SeriesQuery(**{**fields, **changes})


def counted(dimension: str, **changes: Any) -> dict[str, int]:
    found = series_by(query(**changes), dimension)
    return {value: group["total"].count for value, group in found.items()}


@pytest.fixture
def traffic(database: str) -> None:
    store([
        make_record(model="small", pool="fast", region="eu", prompt_tokens=100, cached_tokens=64),
        make_record(model="small", pool="slow", region="", prompt_tokens=5_000, cached_tokens=0),
        make_record(model="large", pool="fast", region="us", route="tier 1", status=429),
        make_record(model="", pool="", region="", status=404),
    ])  # fmt: skip


@pytest.mark.usefixtures("traffic")
def test_each_dimension_divides_all_requests_or_those_of_a_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for _ in range(2):
        assert counted("model") == {"small": 2, "large": 1}
        assert counted("route") == {"direct": 3, "tier 1": 1}
        assert counted("pool") == {"fast": 2, "slow": 1}
        assert counted("region") == {"eu": 1, "us": 1}
        assert counted("status_class") == {"2": 2, "4": 2}
        assert counted("prompt_bucket") == {"0": 3, "3": 1}
        assert counted("pool", model="small") == {"fast": 1, "slow": 1}
        assert counted("model", model="large") == {"large": 1}
        assert counted("pool", model="none") == {}
        whole = merge_all(p.everyone["total"] for p in series_read(query()).values())
        for dimension in ("route", "status_class", "prompt_bucket"):
            parts = [group["total"] for group in series_by(query(), dimension).values()]
            assert merge_all(parts) == whole
        # Again from roll-ups, as if hours had passed.
        rollups.roll_up()
        monkeypatch.setattr(tiers, "SETTLED_AFTER", timedelta(hours=-2))
    with pytest.raises(ValueError, match="dimension: key is not one of model, route"):
        series_by(query(), "key")


@pytest.mark.usefixtures("traffic")
def test_cached_tokens_are_told_by_where_they_came_to_be() -> None:
    found = cache_by(query(), "model")
    assert {name: (each.requests, each.cached) for name, each in found.items()} == {
        "small": (2, 64), "large": (1, 16), "": (1, 16),
    }  # fmt: skip
    assert found["small"].uncached == 5_036
    assert set(cache_by(query(), "route")) == {"direct", "tier 1"}
    assert set(cache_by(query(), "project")) == {str(PROJECT_A)}
    assert set(cache_by(query(), "key")) == {str(ALICE_KEY)}
    assert set(cache_by(query(model="large"), "model")) == {"large"}
    total = UsageSum()
    for usage in cache_by(query(), "key").values():
        total.add(usage)
    assert total.requests == 4
    assert cache_by(query(ORG_C), "model") == {}
    with pytest.raises(ValueError, match="dimension: pool is not one of model"):
        cache_by(query(), "pool")


def test_a_percentile_leads_to_the_nearest_request_of_ones_own(database: str) -> None:
    fast, slow = make_record(total_us=8_000), make_record(total_us=900_000, model="large")
    alike = make_record(total_us=950_000, project=uuid.uuid4().hex)
    store([fast, slow, alike])

    def found(value_us: float, **changes: Any) -> bytes | None:
        request = exemplar(query(**changes), "total", value_us)
        return request.bytes if request else None

    assert found(7_500.0) == found(1) == fast.request
    assert found(910_000) == slow.request
    assert found(960_000) == alike.request
    assert found(960_000, model="large") == slow.request
    assert found(8_000, project=uuid.UUID(alike.project)) == alike.request
    assert found(8_000, organization=ORG_C) is None
    assert found(8_000, end=NOW - HOUR / 2) is None
    later = make_record(total_us=8_100)
    store([later])
    # The newest of an octave in five minutes, unless these were two of them.
    assert found(8_000) in (fast.request, later.request)
    assert rows("SELECT count(*)::int <= 2 FROM exemplars WHERE octave = 13 AND measure = 'total'")


def test_exemplars_age_away(database: str) -> None:
    store([make_record()])
    kept = "SELECT count(*)::int > 0 FROM exemplars"
    services.drop_old_partitions(NOW + timedelta(days=services.EXEMPLAR_DAYS - 1))
    assert rows(kept) == [(True,)]
    services.drop_old_partitions(NOW + timedelta(days=services.EXEMPLAR_DAYS + 1))
    assert rows(kept) == [(False,)]


def test_nobody_asks_for_what_is_not_recorded_or_for_too_many_points() -> None:
    with pytest.raises(ValueError, match="measures: s5_infer.queue is not recorded"):
        query(everyone=("s5_infer.queue",))
    with pytest.raises(ValueError, match="step_s: more than 1500 steps"):
        query(step_s=5)


def test_stretches_cover_a_range_once_in_few_points(database: str) -> None:
    store([make_record()])
    # A day on, what is there has come to be settled in every tier.
    rollups.roll_up(NOW + timedelta(days=1))
    for step_s, days in product((60, 300, 900, 3_600, 21_600, 86_400), (0, 1, 7, 30, 90)):
        check_stretches(step_s, days)


def check_stretches(step_s: int, days: int) -> None:
    """Without a gap, each where its step begins, and coarse where the range is long."""
    span = timedelta(days=days) or HOUR
    for parts_of in (parts_by_step, parts_merged):
        parts = list(parts_of(NOW - span, NOW, step_s))
        assert parts[-1].end == NOW
        assert parts[0].start <= NOW - span
        assert [part.start for part in parts[1:]] == [part.end for part in parts[:-1]]
        for part in parts:
            aligned = tiers.step_floor(part.start, part.step_s)
            assert part.start == aligned
            if part.step_s == 60:
                assert NOW - part.start <= timedelta(days=2, minutes=1)
        points = sum((part.end - part.start).total_seconds() / part.step_s for part in parts)
        if span / timedelta(seconds=step_s) <= 120:
            assert points <= 360
        if parts_of is parts_merged:
            assert points <= 200 + 24 * 2
