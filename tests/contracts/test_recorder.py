"""One suite for the Recorder port: on PostgreSQL, and in memory as tests of the gateway use it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

import pytest

from controlplane.bridge.record.recorder import PostgresRecorder
from controlplane.gateway.ports import Recorder
from controlplane.kernel.clock import wall_us
from tests.support.money import dsn, rows
from tests.support.ports import MemoryRecorder
from tests.support.records import make_record

Row = tuple[bytes, str, int, int, int, bytes]


class Store(Protocol):
    """A recorder, and what it has kept."""

    @property
    def recorder(self) -> Recorder: ...

    async def rows(self) -> list[Row]:
        """(request, model, status, output tokens, nano-USD, spans), oldest first."""


class Memory:
    """That of the fake."""

    def __init__(self) -> None:
        self._memory = MemoryRecorder()
        self.recorder: Recorder = self._memory

    async def rows(self) -> list[Row]:
        return [
            (one.request, one.model, one.status, one.output_tokens, one.cost_nano, one.spans)
            for one in self._memory.records
        ]


class Stored:
    """That of PostgreSQL."""

    def __init__(self, recorder: PostgresRecorder) -> None:
        self._real = recorder
        self.recorder: Recorder = recorder

    async def rows(self) -> list[Row]:
        assert await self._real.flush()
        found = rows(
            "SELECT request, model, status, output_tokens, cost_nano, spans FROM request_records"
            " ORDER BY started_at"
        )
        return [(request.bytes, *more) for request, *more in found]


@pytest.fixture
async def store(kind: str) -> AsyncIterator[Store]:
    if kind == "memory":
        yield Memory()
        return
    made = PostgresRecorder(dsn())
    made.start()
    yield Stored(made)
    await made.close()


async def test_every_request_is_kept_once_and_as_it_was(store: Store) -> None:
    began_us = wall_us()
    records = [
        make_record(started_us=began_us + n, model=f"m{n}", status=status, cost_nano=n)
        for n, status in enumerate((200, 404, 499, 503))
    ]
    for record in records:
        store.recorder.record(record)
    assert await store.rows() == [
        (one.request, one.model, one.status, one.output_tokens, one.cost_nano, one.spans)
        for one in records
    ]


@pytest.mark.parametrize("away", [True, False], ids=["postgresql away", "memory"])
async def test_recording_never_raises(away: bool) -> None:
    recorder: Recorder = PostgresRecorder("host=/nowhere") if away else MemoryRecorder()
    for _ in range(3):
        recorder.record(make_record())
