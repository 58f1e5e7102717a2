"""The Standings port: what a key may still spend, asked of PostgreSQL and remembered for a second.

One question is asked at a time, so that keys that ask often cost others nothing.
"""

from __future__ import annotations

import asyncio
import uuid
from contextlib import suppress

import msgspec
import psycopg

from controlplane.bridge.session import Connection, keep_session
from controlplane.gateway.ports import LedgerAway, Standing
from controlplane.kernel.clock import monotonic_s

QUERY_S_MAX = 2.0
REMEMBERED_S = 1.0
REMEMBERED_MAX = 1_000
IDLE_CHECK_S = 5.0
_STANDING = "SELECT config_key_standing(%s)"
_decoder = msgspec.json.Decoder(Standing)


class PostgresStandings:
    """One per event loop."""

    def __init__(self, conninfo: str) -> None:
        self._conninfo = conninfo
        self._connection: Connection | None = None
        self._lock = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._remembered: dict[str, tuple[float, Standing]] = {}

    def start(self) -> None:
        """Begin to connect; returns at once."""
        self._task = asyncio.create_task(
            keep_session(self._conninfo, "standing", self._serve), name="standing"
        )

    async def close(self) -> None:
        """Stop."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def of(self, key: str, *, waits: bool = True) -> Standing:
        """What a key may spend and has spent, as it was at most a second ago; raises LedgerAway."""
        if (known := self._known(key)) is not None:
            return known
        if self._lock.locked() and not waits:
            raise LedgerAway("another question is being answered")
        async with self._lock:
            if (known := self._known(key)) is not None:
                return known
            found = await self._read(key)
            if len(self._remembered) >= REMEMBERED_MAX:
                self._remembered.clear()
            self._remembered[key] = (monotonic_s(), found)
            return found

    def _known(self, key: str) -> Standing | None:
        read_s, standing = self._remembered.get(key, (0.0, None))
        return standing if monotonic_s() - read_s < REMEMBERED_S else None

    async def _read(self, key: str) -> Standing:
        if self._connection is None:
            raise LedgerAway("budgets cannot be read now")
        try:
            async with asyncio.timeout(QUERY_S_MAX):
                cursor = await self._connection.execute(_STANDING, [uuid.UUID(key)])
                row = await cursor.fetchone()
        except (psycopg.Error, TimeoutError) as error:
            raise LedgerAway("budgets cannot be read now") from error
        # A Playground token has the id of a user: it has no line of keys.
        return Standing() if row is None or row[0] is None else _decoder.decode(row[0])

    async def _serve(self, connection: Connection) -> None:
        self._connection = connection
        try:
            while True:
                await asyncio.sleep(IDLE_CHECK_S)
                async with asyncio.timeout(QUERY_S_MAX), self._lock:
                    await connection.execute("SELECT 1")
        finally:
            self._connection = None
