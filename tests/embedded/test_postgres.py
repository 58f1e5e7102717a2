"""The starter of PostgreSQL: starts, restarts after every kind of bad end, and leaves nothing."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from controlplane.embedded.layout import Layout
from controlplane.embedded.postgres import Postgres
from controlplane.embedded.processes import ServerError, left_overs
from tests.support.embedded import PASSWORD, bystander, copied_layout, fresh_layout
from tests.support.servers import FAST


@pytest.fixture
def empty() -> Iterator[Layout]:
    with fresh_layout() as made:
        yield made


@pytest.fixture(scope="module")
def made() -> Iterator[Layout]:
    with fresh_layout() as made:
        with running(made):
            pass
        yield made


@pytest.fixture
def layout(made: Layout) -> Iterator[Layout]:
    """With a database that was made before, as nearly every start finds it."""
    with copied_layout(made) as layout:
        yield layout


@contextmanager
def running(
    layout: Layout, said: list[str] | None = None, password: str = PASSWORD
) -> Iterator[Postgres]:
    notes = said if said is not None else []
    server = Postgres(layout, password=password, say=notes.append, settings=FAST)
    try:
        server.start()
        yield server
    finally:
        server.stop()


def write_row(server: Postgres) -> None:
    with psycopg.connect(server.superuser_dsn) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 1 AS n")


def row_is_kept(server: Postgres) -> bool:
    with psycopg.connect(server.superuser_dsn) as connection:
        return connection.execute("SELECT n FROM kept").fetchone() == (1,)


def test_a_second_start_keeps_the_data_and_stop_leaves_no_process(layout: Layout) -> None:
    with running(layout) as server:
        write_row(server)
    assert left_overs("postgres", layout.postgres) == []
    with running(layout) as server:
        assert row_is_kept(server)
    assert left_overs("postgres", layout.postgres) == []


def test_starts_again_after_kill_9(layout: Layout) -> None:
    said: list[str] = []
    with running(layout) as server:
        write_row(server)
        server.kill()
        with running(layout, said) as successor:
            assert row_is_kept(successor)
    assert "removed PostgreSQL's stale lock files" in said


def test_ends_a_server_whose_supervisor_was_killed(layout: Layout) -> None:
    said: list[str] = []
    with running(layout) as orphan, running(layout, said):
        assert not orphan.alive
    assert "ended a PostgreSQL left over from a killed run" in said


def test_a_lock_file_that_names_a_living_stranger_is_removed(layout: Layout) -> None:
    with running(layout) as server:
        lock = (layout.postgres / "postmaster.pid").read_text()
        server.kill()
    with bystander() as stranger:
        pid_line, rest = lock.split("\n", 1)
        assert pid_line.isdigit()
        (layout.postgres / "postmaster.pid").write_text(f"{stranger.pid}\n{rest}")
        with running(layout):
            assert stranger.poll() is None


@pytest.mark.parametrize("content", ["", "not a number\n", "12"])
def test_a_half_written_lock_file_does_not_matter(layout: Layout, content: str) -> None:
    with running(layout):
        pass
    (layout.postgres / "postmaster.pid").write_text(content)
    with running(layout) as server:
        assert server.alive


def test_a_half_made_database_is_made_again(empty: Layout) -> None:
    partial = empty.home / "postgres.partial"
    partial.mkdir()
    (partial / "PG_VERSION").write_text("18\n")
    with running(empty) as server:
        assert server.alive


def test_a_database_of_another_version_is_named(empty: Layout) -> None:
    empty.postgres.mkdir()
    (empty.postgres / "PG_VERSION").write_text("15\n")
    with pytest.raises(ServerError, match="PostgreSQL 15"), running(empty):
        pass


def test_a_lost_password_is_named(layout: Layout) -> None:
    with running(layout):
        pass
    changed = "another-password-0123456789-0123456789"
    with (
        pytest.raises(ServerError, match="refuses the password"),
        running(layout, password=changed),
    ):
        pass
    assert left_overs("postgres", layout.postgres) == []


def test_nobody_else_can_reach_the_socket(layout: Layout) -> None:
    with running(layout):
        assert layout.sockets.stat().st_mode & 0o777 == 0o700
        assert list(layout.sockets.glob(".s.PGSQL.*"))
        with pytest.raises(psycopg.OperationalError, match="password"):
            psycopg.connect(host=str(layout.sockets), user="postgres", dbname="postgres")


def test_a_killed_backend_does_not_end_the_server(layout: Layout) -> None:
    with running(layout) as server:
        with psycopg.connect(server.superuser_dsn) as connection:
            os.kill(connection.info.backend_pid, signal.SIGTERM)
        with psycopg.connect(server.superuser_dsn) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
