"""Request ids: UUIDv7, ordered by time."""

from __future__ import annotations

import time
from uuid import UUID

from controlplane.kernel.ids import ID_BYTES, id_time_ms, new_request_id


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
