"""Request ids: UUIDv7, ordered by time, and the ranges that partitions are cut by."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta, timezone
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from controlplane.kernel.ids import ID_BYTES, day_bounds, id_time_ms, new_request_id


def test_shape_and_time() -> None:
    before_ms = time.time_ns() // 1_000_000
    made = new_request_id()
    after_ms = time.time_ns() // 1_000_000
    uuid = UUID(bytes=made)
    assert len(made) == ID_BYTES
    assert (uuid.version, uuid.variant) == (7, "specified in RFC 4122")
    assert before_ms <= id_time_ms(made) <= after_ms


def test_unique_and_in_order_of_time() -> None:
    first = [new_request_id() for _ in range(10_000)]
    assert len(set(first)) == len(first)
    time.sleep(0.002)
    assert max(first) < new_request_id()


@given(st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)))
def test_a_day_holds_exactly_its_own_ids(moment: datetime) -> None:
    first, after = day_bounds(moment)
    made = (int(moment.timestamp() * 1000) << 80).to_bytes(ID_BYTES, "big")
    assert first <= made < after
    assert id_time_ms(after) - id_time_ms(first) == 86_400_000
    assert day_bounds(moment + timedelta(days=1))[0] == after


def test_days_are_days_of_utc() -> None:
    late = datetime(2026, 1, 1, 23, 30, tzinfo=timezone(timedelta(hours=-5)))
    assert day_bounds(late) == day_bounds(datetime(2026, 1, 2, tzinfo=UTC))
