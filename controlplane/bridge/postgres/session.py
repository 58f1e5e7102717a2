"""One PostgreSQL connection that keeps itself alive: connect, work, again 0.1 to 1 s after a loss.

For the ports that ask little; what is written in batches has lanes.
"""

import asyncio
import random
from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec
import psycopg
import structlog
from psycopg.conninfo import make_conninfo

from controlplane.gateway.ports import LedgerAway
from controlplane.kernel.tasks import end

CONNECT_S_MAX = 2
RETRY_S_MIN = 0.1
RETRY_S_MAX = 1.0
# Packets that no one acknowledges for this long end the connection.
TCP_SILENCE_MS_MAX = 3_000
QUERY_S_MAX = 2.0
IDLE_CHECK_S = 5.0

Row = tuple[Any, ...]
Connection = psycopg.AsyncConnection[Row]
_log = structlog.get_logger(__name__)


class PostgresSession:
    """Runs `_work` on a connection until it is closed; one per event loop."""

    name: ClassVar[str]

    def __init__(self, conninfo: str) -> None:
        self._conninfo = conninfo
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._keep(), name=self.name)

    async def close(self) -> None:
        await end(self._task)

    async def _work(self, connection: Connection) -> None:
        raise NotImplementedError

    async def _keep(self) -> None:
        wait_s = RETRY_S_MIN
        while True:
            try:
                async with await self._connect() as connection:
                    wait_s = RETRY_S_MIN
                    await self._work(connection)
            except (psycopg.Error, OSError, TimeoutError, msgspec.MsgspecError) as error:
                kind = type(error).__name__
                _log.warning("postgresql session lost", session=self.name, error=kind)
            await asyncio.sleep(wait_s * random.uniform(0.5, 1.0))
            wait_s = min(RETRY_S_MAX, wait_s * 2)

    async def _connect(self) -> Connection:
        return await psycopg.AsyncConnection.connect(
            make_conninfo(
                self._conninfo,
                connect_timeout=CONNECT_S_MAX,
                application_name=f"sluice-{self.name}",
                tcp_user_timeout=TCP_SILENCE_MS_MAX,
            ),
            autocommit=True,
        )


class AskingSession(PostgresSession):
    """A session for questions, one at a time; `unavailable` is the text of `LedgerAway`."""

    unavailable: ClassVar[str]

    def __init__(self, conninfo: str) -> None:
        super().__init__(conninfo)
        self._connection: Connection | None = None
        self._lock = asyncio.Lock()

    async def _rows(self, query: str, values: Sequence[Any]) -> list[Row]:
        """What is answered; raises `LedgerAway`."""
        if self._connection is None:
            raise LedgerAway(self.unavailable)
        try:
            return await self._fetch(self._connection, query, values)
        except (psycopg.Error, TimeoutError) as error:
            if isinstance(error, psycopg.errors.ReadOnlySqlTransaction):
                # Another host of the list may take writes: `_turn` finds this one closed.
                await self._connection.close()
            raise LedgerAway(self.unavailable) from error

    async def _fetch(
        self, connection: Connection, query: str, values: Sequence[Any] = ()
    ) -> list[Row]:
        async with asyncio.timeout(QUERY_S_MAX), self._lock:
            return await (await connection.execute(query, values)).fetchall()

    async def _work(self, connection: Connection) -> None:
        self._connection = connection
        try:
            while True:
                await self._turn(connection)
        finally:
            self._connection = None

    async def _turn(self, connection: Connection) -> None:
        """What is done over and over: make sure that the connection still lives."""
        await asyncio.sleep(IDLE_CHECK_S)
        await self._fetch(connection, "SELECT 1")
