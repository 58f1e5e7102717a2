"""A server that cannot start now is tried for ever, and comes back with its data when it can."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import psycopg
import pytest

from controlplane.core.embedded import kept
from controlplane.core.embedded.kept import KeptServer
from controlplane.core.embedded.layout import Layout
from controlplane.core.embedded.postgres import Postgres
from tests.support.embedded import PASSWORD, fresh_layout
from tests.support.servers import FAST

WAIT_SECONDS_MAX = 60.0


@pytest.fixture
def layout() -> Iterator[Layout]:
    with fresh_layout() as made:
        yield made


def until(holds: Callable[[], bool], server: KeptServer) -> bool:
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while time.monotonic() < deadline:
        server.look()
        if holds():
            return True
        time.sleep(0.02)
    return False


@pytest.mark.parametrize("away", ["global/pg_control", ""])
def test_it_comes_back_with_its_data_once_what_was_away_is_there_again(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, away: str
) -> None:
    monkeypatch.setattr("controlplane.core.embedded.postgres.AGAIN_SECONDS_MAX", 0.3)
    monkeypatch.setattr(kept, "BACKOFF_SECONDS_MAX", 0.2)
    said: list[str] = []
    postgres = Postgres(layout, password=PASSWORD, say=said.append, settings=FAST)
    server = KeptServer(postgres, said.append)
    missing = layout.postgres / away
    aside = layout.home / "aside"
    try:
        server.start()
        with psycopg.connect(postgres.superuser_dsn) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 1 AS n")
        postgres.kill()
        missing.rename(aside)
        tried = "PostgreSQL is tried again"
        assert until(lambda: sum(tried in line for line in said) >= 3, server)
        assert not postgres.alive
        assert away or not missing.exists(), "an empty database must not take its place"
        aside.rename(missing)
        assert until(lambda: "PostgreSQL answers again" in said, server)
        with psycopg.connect(postgres.superuser_dsn) as connection:
            assert connection.execute("SELECT n FROM kept").fetchone() == (1,)
        assert said.count("PostgreSQL ended unexpectedly, starting it again") == 1
    finally:
        server.stop()
