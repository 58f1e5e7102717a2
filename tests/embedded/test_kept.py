"""A server that cannot start now is tried for ever, and comes back with its data when it can."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import psycopg
import pytest

from controlplane.embedded.kept import KeptServer
from controlplane.embedded.layout import Layout
from controlplane.embedded.postgres import Postgres
from inference import children
from tests.support.embedded import PASSWORD, fresh_layout
from tests.support.servers import FAST
from tests.support.waiting import wait_for


@pytest.fixture
def layout() -> Iterator[Layout]:
    with fresh_layout() as made:
        yield made


def look_until(holds: Callable[[], bool], server: KeptServer) -> None:
    def looked() -> bool:
        server.look()
        return holds()

    wait_for(looked)


@pytest.mark.parametrize("away", ["global/pg_control", ""])
def test_it_comes_back_with_its_data_once_what_was_away_is_there_again(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, away: str
) -> None:
    monkeypatch.setattr("controlplane.embedded.postgres.AGAIN_SECONDS_MAX", 0.3)
    monkeypatch.setattr(children, "BACKOFF_S_MAX", 0.2)
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
        tried = "retrying PostgreSQL"
        look_until(lambda: sum(tried in line for line in said) >= 3, server)
        assert not postgres.alive
        assert away or not missing.exists(), "an empty database must not take its place"
        aside.rename(missing)
        look_until(lambda: "PostgreSQL answers again" in said, server)
        with psycopg.connect(postgres.superuser_dsn) as connection:
            assert connection.execute("SELECT n FROM kept").fetchone() == (1,)
        assert said.count("PostgreSQL exited unexpectedly; restarting it") == 1
    finally:
        server.stop()
