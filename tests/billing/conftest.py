"""A connected ledger on a fresh database."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from controlplane.bridge.money.ledger import PostgresLedger
from tests.support.money import dsn
from tests.support.waiting import until


@pytest.fixture
async def ledger(database: str) -> AsyncIterator[PostgresLedger]:
    made = PostgresLedger(dsn())
    made.start()
    await until(lambda: not made.away)
    yield made
    await made.close()
