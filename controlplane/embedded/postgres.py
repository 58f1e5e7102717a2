"""Starter of the private PostgreSQL: the wheel's programs, our own folders, locks and signals.

It trusts a connection and never a pid. Roles and tables are made elsewhere (`bootstrap_db`).
"""

import os
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

import psycopg
from django.conf import settings

from controlplane.embedded.kept import EmbeddedServer
from controlplane.embedded.layout import POSTGRES_MAJOR, Layout, postgres_folder
from controlplane.embedded.processes import Say, ServerError, end, end_left_overs, log_tail, spawn

SUPERUSER = "postgres"
# A server that lives may be replaying its log; one that exits is retried only this long.
START_SECONDS_MAX = 300.0
RETRY_SECONDS_MAX = 15.0
AGAIN_SECONDS_MAX = 3.0
RETRY_PAUSE_SECONDS = 0.1
STOP_SECONDS_MAX = 30.0
QUIT_SECONDS_MAX = 5.0
INITDB_SECONDS_MAX = 120.0
# A segment that is not full is archived after so long: what a lost disk costs at most.
ARCHIVE_SECONDS = 60


class Postgres(EmbeddedServer):
    """One private PostgreSQL server, reached through a socket in a folder of ours."""

    name, log_name = "PostgreSQL", "postgres.log"
    major = POSTGRES_MAJOR
    locale: tuple[str, ...] = (
        "--locale-provider=builtin",
        "--builtin-locale=C.UTF-8",
        "--locale=C",
    )

    def __init__(
        self, layout: Layout, *, password: str, say: Say, settings: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(layout, password=password, say=say)
        self._settings = settings or {}
        self._programs = postgres_folder(layout) / "bin"

    @property
    def superuser_dsn(self) -> str:
        """Connection string of the superuser to the maintenance database."""
        return psycopg.conninfo.make_conninfo(
            host=str(self._layout.sockets),
            user=SUPERUSER,
            password=self._password,
            dbname="postgres",
            connect_timeout=2,
        )

    def start(self) -> None:
        """Make the database folder where it is missing, and return once a connection works."""
        self._log.parent.mkdir(parents=True, exist_ok=True)
        self._end_predecessor()
        self._initialize()
        self._launch_until(RETRY_SECONDS_MAX)

    def start_again(self) -> None:
        """The same of a server that has run: a folder that is not there now is not made anew."""
        if not (self._layout.postgres / "PG_VERSION").exists():
            raise ServerError(f"{self._layout.postgres} contains no database.")
        self._end_predecessor()
        self._launch_until(AGAIN_SECONDS_MAX)

    def _launch_until(self, retry_seconds_max: float) -> None:
        started = time.monotonic()
        self._launch()
        while not self._accepts():
            waited = time.monotonic() - started
            if self.alive and waited < START_SECONDS_MAX:
                time.sleep(RETRY_PAUSE_SECONDS)
            elif waited < retry_seconds_max:
                # The children of a killed server hold its memory for a moment longer.
                time.sleep(RETRY_PAUSE_SECONDS)
                self._launch()
            else:
                self.stop()
                raise ServerError(f"PostgreSQL failed to start:\n{log_tail(self._log)}")

    def stop(self) -> None:
        """End the server: its connections are cut, its log is flushed. Bounded."""
        if self._process is None:
            return
        fast, at_once = signal.SIGINT, signal.SIGQUIT
        if not end(self._process, (fast, STOP_SECONDS_MAX), (at_once, QUIT_SECONDS_MAX)):
            self._say("PostgreSQL did not stop in time and was killed; it will recover.")
        self._process = None

    def _launch(self) -> None:
        options = {
            "listen_addresses": "",
            "unix_socket_directories": str(self._layout.sockets),
            "unix_socket_permissions": "0700",
            "cluster_name": "sluice",
            "password_encryption": "scram-sha-256",
            **self._settings,
        }
        flags = [part for key, value in options.items() for part in ("-c", f"{key}={value}")]
        self._process = spawn(
            [str(self._programs / "postgres"), "-D", str(self._layout.postgres), *flags],
            log=self._log,
            folder=self._layout.home,
            account=self._layout.account,
        )

    def _accepts(self) -> bool:
        try:
            psycopg.connect(self.superuser_dsn).close()
        except psycopg.OperationalError as error:
            if "authentication failed" in str(error):
                self.stop()
                raise ServerError(
                    f"PostgreSQL in {self._layout.postgres} refuses the password kept in "
                    f"{self._layout.data / 'secrets'}: they do not match."
                ) from error
            return False
        return True

    def _end_predecessor(self) -> None:
        folder, sockets = self._layout.postgres, self._layout.sockets
        if end_left_overs("postgres", folder, polite=signal.SIGINT, seconds=STOP_SECONDS_MAX):
            self._say("ended a PostgreSQL left over from a killed run")
        # Nothing runs in the folder any more, so whatever its lock files name is foreign.
        locks = [folder / "postmaster.pid", *sockets.glob(".s.PGSQL.*")]
        stale = [file for file in locks if file.exists()]
        for file in stale:
            file.unlink()
        if stale:
            self._say("removed PostgreSQL's stale lock files")

    def _initialize(self) -> None:
        folder = self._layout.postgres
        version = folder / "PG_VERSION"
        if version.exists():
            if version.read_text().strip() != self.major:
                raise ServerError(
                    f"{folder} was created by PostgreSQL {version.read_text().strip()}, this is "
                    f"{self.major}: dump it with the old version and restore it."
                )
            return
        self._say("creating the database (first start only)")
        partial = folder.with_name("postgres.partial")
        shutil.rmtree(partial, ignore_errors=True)
        self._initdb(partial)
        partial.rename(folder)

    def _initdb(self, folder: Path) -> None:
        folder.mkdir(mode=0o700)
        password = folder.with_name("postgres.password")
        password.touch(mode=0o600)
        try:
            password.write_text(self._password)
            if self._layout.account is not None:
                for path in (folder, password):
                    os.chown(path, self._layout.account.uid, self._layout.account.gid)
            failed = self._run_initdb(folder, password) != 0
        except subprocess.TimeoutExpired:
            failed = True
        finally:
            password.unlink()
        if failed:
            raise ServerError(f"The database cannot be created:\n{log_tail(self._log)}")

    def _run_initdb(self, folder: Path, password: Path) -> int:
        hurried = ("--no-sync",) if self._settings.get("fsync") == "off" else ()
        process = spawn(
            [
                str(self._programs / "initdb"),
                *("-D", str(folder), "-U", SUPERUSER, f"--pwfile={password}"),
                *("--auth=scram-sha-256", "--encoding=UTF8", "--no-instructions"),
                *self.locale,
                *hurried,
            ],
            log=self._log,
            folder=self._layout.home,
            account=self._layout.account,
        )
        try:
            return process.wait(timeout=INITDB_SECONDS_MAX)
        finally:
            process.kill()


def private_postgres(layout: Layout, say: Say) -> Postgres:
    """The server of the settings, which archives its WAL where they name a folder for it."""
    options: dict[str, str] = {}
    if (folder := settings.WAL_ARCHIVE) is not None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if layout.account is not None:
            os.chown(folder, layout.account.uid, layout.account.gid)
        # One that is there already is fine if it is the same: the server was told of it too late.
        copy = archived(
            folder,
            "if test -f {file}; then cmp -s %p {file}; "
            "else cp %p {file}.new && mv {file}.new {file}; fi",
        )
        options = {
            "archive_mode": "on",
            "archive_command": copy,
            "archive_timeout": f"{ARCHIVE_SECONDS}s",
        }
    return Postgres(layout, password=settings.SUPERUSER_PASSWORD, say=say, settings=options)


def archived(folder: Path, command: str) -> str:
    """A command of the server's settings, with `{file}` for a segment's place in the archive."""
    return command.format(file=f"{shlex.quote(str(folder)).replace('%', '%%')}/%f")
