"""The Standings port on the PostgreSQL of the settings."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from controlplane.bridge.money.standings import PostgresStandings
from controlplane.gateway.ports import LedgerAway
from tests.support.money import dsn
from tests.support.waiting import until


@asynccontextmanager
async def running_standings() -> AsyncIterator[PostgresStandings]:
    """One that is connected."""
    made = PostgresStandings(dsn())
    made.start()

    async def answers() -> bool:
        try:
            await made.of(uuid.uuid4().hex)
        except LedgerAway:
            return False
        return True

    await until(answers)
    yield made
    await made.close()
