"""One PostgreSQL connection that keeps itself alive: connect, work, again 0.1 to 1 s after a loss.

For the slow ports (snapshot, fleet). The ledger drives its own lanes.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
import psycopg
import structlog
from psycopg.conninfo import make_conninfo

CONNECT_S_MAX = 2
RETRY_S_MIN = 0.1
RETRY_S_MAX = 1.0
# Packets that nobody acknowledges for this long end the connection.
TCP_SILENCE_MS_MAX = 3_000

Connection = psycopg.AsyncConnection[tuple[Any, ...]]
Work = Callable[[Connection], Awaitable[None]]
_log = structlog.get_logger(__name__)


def conninfo_from(database: Mapping[str, Any]) -> str:
    """The connection string of one entry of Django's DATABASES."""
    return make_conninfo(
        host=database["HOST"],
        port=database["PORT"] or None,
        dbname=database["NAME"],
        user=database["USER"],
        password=database["PASSWORD"],
        **database.get("OPTIONS", {}),
    )


async def keep_session(conninfo: str, name: str, work: Work) -> None:
    """Run `work` on a connection for ever, connecting again whenever it fails. Ends by cancel."""
    wait_s = RETRY_S_MIN
    while True:
        try:
            async with await _connect(conninfo, name) as connection:
                wait_s = RETRY_S_MIN
                await work(connection)
        except (psycopg.Error, OSError, TimeoutError, msgspec.MsgspecError) as error:
            _log.warning("postgresql session lost", session=name, error=type(error).__name__)
        await asyncio.sleep(wait_s * random.uniform(0.5, 1.0))
        wait_s = min(RETRY_S_MAX, wait_s * 2)


async def _connect(conninfo: str, name: str) -> Connection:
    return await psycopg.AsyncConnection.connect(
        make_conninfo(
            conninfo,
            connect_timeout=CONNECT_S_MAX,
            application_name=f"sluice-{name}",
            tcp_user_timeout=TCP_SILENCE_MS_MAX,
        ),
        autocommit=True,
    )
