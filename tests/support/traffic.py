"""Recorded requests for tests of the dry run and of canaries, through the real recorder."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import msgspec

from controlplane.bridge.record.recorder import PostgresRecorder
from controlplane.gateway.ports import FinishedRequest
from controlplane.kernel.ids import new_request_id
from tests.support.money import dsn
from tests.support.people import Cast
from tests.support.records import make_record

DRAW_BYTES = 4


def store(records: Iterable[FinishedRequest]) -> None:
    """Write rows as one gateway process would."""

    async def write() -> None:
        recorder = PostgresRecorder(dsn())
        recorder.start()
        for record in records:
            recorder.record(record)
        assert await recorder.flush()
        await recorder.close()

    asyncio.run(write())


def asked(cast: Cast, alias: str, /, *, draw: float | None = None, **more: Any) -> FinishedRequest:
    """A request of Acme for `alias`, that no rule sent elsewhere; `draw` is its lot in [0, 1)."""
    request = new_request_id()
    if draw is not None:
        lot = int(draw * (1 << 8 * DRAW_BYTES)).to_bytes(DRAW_BYTES, "big")
        request = request[:-DRAW_BYTES] + lot
    fields: dict[str, Any] = {
        "request": request,
        "organization": cast.acme.id.hex,
        "project": cast.project.id.hex,
        "model": alias,
        "prompt_tokens": 100,
        "cached_tokens": 64,
        "output_tokens": 50,
    }
    return make_record(**{**fields, **more})


def routed(cast: Cast, alias: str, label: str, /, **more: Any) -> FinishedRequest:
    """One that a rule of this label decided, as its receipt tells."""
    receipt = msgspec.json.encode({"rule": label, "asked": alias, "node": "node-1"})
    return asked(cast, alias, **{"route": label, "receipt": receipt, **more})
