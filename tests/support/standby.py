"""A streaming, synchronous standby of this run's PostgreSQL, which can take its place."""

import os
import random
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg
from django.conf import settings
from django.db import connections
from psycopg.conninfo import make_conninfo

from tests.support.embedded import fresh_layout
from tests.support.servers import FAST, OtherPostgres, Servers
from tests.support.waiting import wait_for

NAME = "standby"
PORT = 5432
STREAMS = "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"


@dataclass
class Pair:
    """A primary and its standby; `place` is where both listen, as a URL has it."""

    primary: OtherPostgres
    standby: OtherPostgres
    place: str

    def fail_over(self) -> None:
        """The primary dies, and the standby takes its place; so do the tests' own connections."""
        self.primary.kill()
        _forget(self.primary)
        with psycopg.connect(self.standby.superuser_dsn, autocommit=True) as connection:
            connection.execute("SELECT pg_promote()")
        _move(str(self.standby._layout.sockets))


@contextmanager
def standing_by(servers: Servers) -> Iterator[Pair]:
    """Both as TCP servers until the block ends; the primary is as it was again then."""
    primary, before = servers.postgres, servers.postgres._settings
    assert isinstance(primary, OtherPostgres)
    # The port must be that of the sockets, so each run has addresses of its own.
    net = f"127.{random.randint(1, 254)}.{random.randint(0, 255)}"
    _restart(primary, {**FAST, "listen_addresses": f"{net}.1"})
    try:
        with fresh_layout() as layout:
            standby = OtherPostgres(
                layout,
                password=settings.SUPERUSER_PASSWORD,
                say=lambda _: None,
                settings={**FAST, "listen_addresses": f"{net}.2"},
            )
            _copy(primary, standby)
            standby.start()
            try:
                _order(primary, f"ALTER SYSTEM SET synchronous_standby_names = '{NAME}'")
                wait_for(lambda: _order(primary, STREAMS), "standby")
                yield Pair(primary, standby, f"{net}.1:{PORT},{net}.2:{PORT}")
            finally:
                standby.stop()
    finally:
        _move(str(servers.layout.sockets))
        _forget(primary)
        _restart(primary, before)


def _copy(primary: OtherPostgres, standby: OtherPostgres) -> None:
    """The primary's files into the standby's folder, and where it follows."""
    folder, account = standby._layout.postgres, standby._layout.account
    followed = make_conninfo(primary.superuser_dsn, application_name=NAME)
    subprocess.run(
        [str(primary._programs / "pg_basebackup"), "--pgdata", str(folder), "--write-recovery-conf",
         "--checkpoint=fast", "--no-sync", "--dbname", followed],
        check=True, capture_output=True, env={"PATH": os.environ["PATH"]},
    )  # fmt: skip
    if account is not None:
        subprocess.run(["chown", "-R", f"{account.uid}:{account.gid}", str(folder)], check=True)


def _order(server: OtherPostgres, statement: str) -> bool:
    """Have it done, and read the settings anew; whether there is a row."""
    with psycopg.connect(server.superuser_dsn, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        found = cursor.description is None or cursor.fetchone() is not None
        connection.execute("SELECT pg_reload_conf()")
    return found


def _forget(server: OtherPostgres) -> None:
    """Have it wait for no standby when it starts again."""
    (server._layout.postgres / "postgresql.auto.conf").write_text("")


def _restart(server: OtherPostgres, wanted: object) -> None:
    server.stop()
    server._settings = wanted  # type: ignore[assignment]
    server.start()


def _move(sockets: str) -> None:
    """Have Django and the tests' own connections dial the server of these sockets."""
    connections.close_all()
    for database in settings.DATABASES.values():
        database["HOST"] = sockets
