"""Real PostgreSQL and Redis for tests: one pair a run, a database like a fresh one a test.

The database is migrated once and kept as a template, of which tests use copies.
"""

import io
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import cache
from pathlib import Path
from typing import Any, LiteralString

import psycopg
from django.conf import settings
from django.core.management import call_command
from django.db import connections
from psycopg import sql
from psycopg.conninfo import make_conninfo
from redis import Redis

from controlplane.core.database_roles import OWNER_ROLE
from controlplane.embedded.layout import Layout, embedded_layout, prepare
from controlplane.embedded.postgres import Postgres
from controlplane.embedded.redis_server import RedisServer
from tests.support.reuse import KeptDatabase

TEMPLATE = "sluice_template"
# A folder of programs, and the first release with a locale of its own.
OTHER_POSTGRES, BUILTIN_LOCALES_SINCE = "SLUICE_TEST_POSTGRES", 17
# The one that tests of this process use now, if any.
_kept: list[KeptDatabase] = []
# A test's data need not survive a power cut.
FAST = {
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "200",
    "shared_buffers": "64MB",
}


# Memory where there is enough: copying a database on a busy disk took 20 times as long.
MEMORY_FOLDER = Path("/dev/shm")
MEMORY_BYTES_MIN = 2 * 2**30


def make_data_folder() -> tempfile.TemporaryDirectory[str]:
    """A short folder that the servers' account can enter."""
    roomy = MEMORY_FOLDER.is_dir() and shutil.disk_usage(MEMORY_FOLDER).free > MEMORY_BYTES_MIN
    folder = tempfile.TemporaryDirectory(prefix="sluice-", dir=MEMORY_FOLDER if roomy else "/tmp")
    Path(folder.name).chmod(0o755)
    return folder


class Watchdog:
    """A process that ends the servers of a data folder should this one be killed."""

    def __init__(self, data: Path) -> None:
        # A session of its own: what ends the run must not end this with it.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.watchdog", str(data)],
            stdin=subprocess.PIPE,
            cwd=settings.BASE_DIR,
            start_new_session=True,
        )

    def let_go(self) -> None:
        """What happens when this process is killed; returns when the servers have ended."""
        self._process.communicate()

    def stop(self) -> None:
        """End it before it does anything."""
        self._process.kill()
        self._process.communicate()


@dataclass(frozen=True)
class Servers:
    """The running pair."""

    layout: Layout
    postgres: Postgres
    redis: RedisServer
    watchdog: Watchdog

    def stop(self) -> None:
        """End both; nothing is left running or open."""
        _leave()
        self.redis.stop()
        self.postgres.stop()
        self.watchdog.stop()


class OtherPostgres(Postgres):
    """The programs of another release where one is asked for (`make test-postgres PG=...`)."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        if folder := os.environ.get(OTHER_POSTGRES):
            self._programs = Path(folder)
            told = subprocess.check_output([self._programs / "postgres", "--version"], text=True)
            self.major = told.split()[2].partition(".")[0]
            if int(self.major) < BUILTIN_LOCALES_SINCE:
                self.locale = ("--locale=C.UTF-8",)


class OpenRedis(RedisServer):
    """The private Redis, and a user who may do everything: what tests bring about."""

    def _configuration(self) -> str:
        allowed = f"user tests on >{self._password} ~* &* +@all\n"
        if not self._release().startswith("6."):
            allowed += "enable-debug-command yes\n"
        return f"{super()._configuration()}{allowed}"


def redis_door() -> Redis:
    """A connection of that user."""
    return Redis.from_url(str(settings.REDIS_URL).replace("unix://:", "unix://tests:", 1))


def start_servers(server_settings: Mapping[str, str] = FAST) -> Servers:
    """Start both for the data folder that the settings name, with a migrated template."""
    layout = embedded_layout(settings.DATA_DIR)
    prepare(layout)
    notes: list[str] = []
    postgres = OtherPostgres(
        layout, password=settings.SUPERUSER_PASSWORD, say=notes.append, settings=server_settings
    )
    private = OpenRedis(layout, password=settings.REDIS_PASSWORD, say=notes.append)
    servers = Servers(layout, postgres, private, Watchdog(layout.data))
    try:
        postgres.start()
        private.start()
        call_command("bootstrap_db", verbosity=0)
        call_command("migrate", verbosity=0)
        _make_template(postgres)
    except BaseException:
        servers.stop()
        raise
    return servers


def make_database(postgres: Postgres) -> None:
    """Give the name that the settings use to a database that is as the template: a kept one, or a
    fresh copy."""
    if not (_kept and _kept[-1].emptied()):
        _forget(postgres)
        _maintain(
            postgres, "CREATE DATABASE {} TEMPLATE {} OWNER {}", _name(), TEMPLATE, OWNER_ROLE
        )
        _kept.append(KeptDatabase(make_conninfo(postgres.superuser_dsn, dbname=_name())))
    if _today() > _first_day():
        # The run began before midnight: what a worker does every hour.
        call_command("make_partitions", stdout=io.StringIO())
        connections.close_all()


def drop_database(postgres: Postgres) -> None:
    """Cut whatever is still connected; the next test finds the database emptied."""
    connections.close_all()
    try:
        gone = bool(_kept) and _kept[-1].cut()
    except psycopg.OperationalError:
        gone = False
    if not gone:
        _forget(postgres)


def _leave() -> None:
    while _kept:
        _kept.pop().close()


def _forget(postgres: Postgres) -> None:
    _leave()
    _maintain(postgres, "DROP DATABASE IF EXISTS {} WITH (FORCE)", _name())


def _today() -> date:
    return datetime.now(UTC).date()


@cache
def _first_day() -> date:
    """The day on which the template was migrated: its partitions are of the week from there."""
    return _today()


def _make_template(postgres: Postgres) -> None:
    _first_day()
    connections.close_all()
    _maintain(postgres, "ALTER DATABASE {} RENAME TO {}", _name(), TEMPLATE)


def _maintain(postgres: Postgres, statement: LiteralString, *names: str) -> None:
    text = sql.SQL(statement).format(*(sql.Identifier(name) for name in names))
    with psycopg.connect(postgres.superuser_dsn, autocommit=True) as connection:
        connection.execute(text)


def _name() -> str:
    name: str = settings.DATABASES["default"]["NAME"]
    return name
