"""PostgreSQL's own programs: which ones fit a server, and running one within bounds."""

import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryFile

from django.conf import settings
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from controlplane.composed.backups.archive import BackupError
from controlplane.core.database_roles import conninfo_of, password_of
from controlplane.embedded.layout import LayoutError, embedded_layout, postgres_folder
from controlplane.embedded.postgres import SUPERUSER

VERSION_SECONDS_MAX = 10.0
LOOK_SECONDS = 0.2
TELL_SECONDS = 5.0
ERROR_BYTES_MAX = 4_096


def reading_dsn() -> str:
    """Who sees every row: the private server's superuser, or the role of DATABASE_BACKUP_URL."""
    if settings.EMBEDDED_DATABASE:
        return _superuser_dsn()
    if "backup" not in settings.DATABASES:
        raise BackupError(
            "On a PostgreSQL of your own, DATABASE_BACKUP_URL must name a role that sees every "
            "row. An administrator makes it once:\n"
            "CREATE ROLE sluice_backup LOGIN BYPASSRLS PASSWORD '...';\n"
            "GRANT pg_read_all_data TO sluice_backup;"
        )
    return _dsn("backup")


def writing_dsn() -> str:
    """Who may make every table: the private server's superuser, or the owner."""
    return _superuser_dsn() if settings.EMBEDDED_DATABASE else _dsn("owner")


def program(name: str, server_major: int) -> Path:
    """The one that fits the server best: of its version on the PATH or installed, else a newer."""
    found: dict[int, Path] = {}
    if (on_path := shutil.which(name)) is not None:
        found[_major(Path(on_path))] = Path(on_path)
    try:
        # We run it ourselves, so that the servers' account need not reach it.
        ours = replace(embedded_layout(settings.DATA_DIR), account=None)
        packaged = postgres_folder(ours) / "bin" / name
        found.setdefault(_major(packaged), packaged)
    except LayoutError:
        pass
    fitting = [major for major in found if major >= server_major]
    if not fitting:
        raise BackupError(f"{name} of PostgreSQL {server_major} or newer is not on the PATH.")
    return found[min(fitting)]


def run(
    argv: list[str],
    dsn: str,
    *,
    seconds_max: float,
    look: Callable[[], None],
    tell: Callable[[], None],
) -> None:
    """Run a program on a database; raises BackupError with its last words.

    `look` may raise, which ends the program; `tell` says how far it is, every few seconds.
    """
    login = conninfo_to_dict(dsn)
    password = str(login.pop("password", ""))
    target = f"--dbname={make_conninfo('', **login)}"
    # libpq has settings of its own there; our secrets are none of its business.
    environment = {name: text for name, text in os.environ.items() if name[:6] != "SLUICE"}
    environment |= {"PGPASSWORD": password, "LC_ALL": "C.UTF-8"}
    started = told = time.monotonic()
    with (
        TemporaryFile() as words,
        subprocess.Popen(
            [*argv, "--no-password", target], stderr=words, env=environment
        ) as process,
    ):
        try:
            while (code := _wait(process)) is None:
                now = time.monotonic()
                if now - started > seconds_max:
                    raise BackupError(f"{Path(argv[0]).name} took longer than {seconds_max:.0f} s.")
                look()
                if now - told > TELL_SECONDS:
                    told = now
                    tell()
        finally:
            process.kill()
        if code:
            words.seek(max(0, words.tell() - ERROR_BYTES_MAX))
            last = words.read().decode(errors="replace").strip()
            raise BackupError(f"{Path(argv[0]).name} failed: {last}")


def _wait(process: subprocess.Popen[bytes]) -> int | None:
    try:
        return process.wait(timeout=LOOK_SECONDS)
    except subprocess.TimeoutExpired:
        return None


def _superuser_dsn() -> str:
    return _dsn("owner", user=SUPERUSER, password=settings.SUPERUSER_PASSWORD)


def _dsn(alias: str, **login: str) -> str:
    known = settings.DATABASES[alias]
    return conninfo_of(known, **{"password": password_of(known), **login})


def _major(path: Path) -> int:
    command = [str(path), "--version"]
    told = subprocess.run(command, capture_output=True, text=True, timeout=VERSION_SECONDS_MAX)
    version = re.search(r"\) (\d+)", told.stdout)
    if version is None:
        raise BackupError(f"{path} does not say its version.")
    return int(version[1])
