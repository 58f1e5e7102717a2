"""Recovery of the embedded PostgreSQL to an instant: a base backup, and the WAL archived since.

As in "Continuous Archiving and Point-in-Time Recovery" of PostgreSQL's manual.
"""

import os
import shutil
from datetime import datetime
from io import StringIO
from pathlib import Path

import msgspec
import psycopg
from django.conf import settings
from django.core.management import call_command

from controlplane.composed.backups.archive import BackupError, FileFacts, check_room, facts_of_path
from controlplane.composed.backups.making import DUMP_SECONDS_MAX
from controlplane.composed.backups.private_server import private_server
from controlplane.composed.backups.programs import program, reading_dsn, run, writing_dsn
from controlplane.composed.backups.restoring import RESTORE_SECONDS_MAX, bring_up
from controlplane.embedded.layout import Layout, embedded_layout, prepare
from controlplane.embedded.postgres import archived
from controlplane.embedded.processes import Say, wait_until

SIGNAL, SETTINGS, MANIFEST = "recovery.signal", "postgresql.auto.conf", "backup_manifest"
OWN = "This is for the embedded PostgreSQL; use pg_basebackup and the WAL archive of your own."
TEMPORARY = (
    "restore_command", "recovery_target_time", "recovery_target_action", "recovery_target_timeline",
)  # fmt: skip


def make_base(target: Path, say: Say) -> None:
    """Copy the running server's files into a new folder, and check each; raises BackupError."""
    if not settings.EMBEDDED_DATABASE:
        raise BackupError(OWN)
    if settings.WAL_ARCHIVE is None:
        raise BackupError("SLUICE_WAL_ARCHIVE is not set: without it a base backup is of no use.")
    if target.exists():
        raise BackupError(f"{target} exists; name a new folder.")
    dsn = reading_dsn()
    with psycopg.connect(dsn) as connection:
        major = connection.info.server_version // 10_000
    argv = [str(program("pg_basebackup", major)), f"--pgdata={target}", "--checkpoint=fast"]
    argv.append("--manifest-checksums=SHA256")
    say("copying the database's files")
    run(
        argv,
        dsn,
        seconds_max=DUMP_SECONDS_MAX,
        look=lambda: check_room(target.parent),
        tell=lambda: None,
    )
    _check(target)
    say(f"{target} is whole; keep it with the archived WAL since")


def _check(base: Path) -> None:
    """Every file of the manifest that the server has written, by size and SHA-256."""
    manifest = msgspec.json.decode((base / MANIFEST).read_bytes())
    for each in manifest["Files"]:
        path = base / each["Path"]
        if facts_of_path(path) != FileFacts(size=each["Size"], sha256=each["Checksum"]):
            raise BackupError(f"{path} is not as the server sent it: make another base backup.")


def restore_until(base: Path, until: datetime, say: Say) -> None:
    """Put the database back as it was at an instant, and verify it; raises BackupError.

    The data folder must have its secrets and no database.
    """
    if not settings.EMBEDDED_DATABASE:
        raise BackupError(OWN)
    if not (base / MANIFEST).exists() or settings.WAL_ARCHIVE is None:
        raise BackupError(f"{base} must be a base backup, and SLUICE_WAL_ARCHIVE set.")
    _check(base)
    layout = embedded_layout(settings.DATA_DIR)
    prepare(layout)
    if layout.postgres.exists():
        raise BackupError(f"{layout.postgres} exists: stop Sluice and move that folder away.")
    _put(base, layout, until, settings.WAL_ARCHIVE)
    with private_server(say):
        _await_end(say)
        # Passwords may have been replaced since.
        call_command("bootstrap_db", stdout=StringIO())
        bring_up(None)
    say(f"the database is as of {until.isoformat()}; verify_ledger and verify_audit find nothing")


def _put(base: Path, layout: Layout, until: datetime, archive: Path) -> None:
    partial = layout.postgres.with_name("postgres.partial")
    shutil.rmtree(partial, ignore_errors=True)
    shutil.copytree(base, partial, symlinks=True)
    with (partial / SETTINGS).open("a") as file:
        file.write(
            f"restore_command = '{archived(archive, 'cp {file} %p')}'\n"
            f"recovery_target_time = '{until.isoformat()}'\n"
            "recovery_target_action = 'promote'\n"
            # Not on into what an earlier recovery from the same base has written since.
            "recovery_target_timeline = 'current'\n"
        )
    (partial / SIGNAL).touch()
    partial.chmod(0o700)
    if layout.account is not None:
        for path in (partial, *partial.rglob("*")):
            os.chown(path, layout.account.uid, layout.account.gid, follow_symlinks=False)
    partial.rename(layout.postgres)


def _await_end(say: Say) -> None:
    """Until all is replayed; then nothing of the recovery stays set."""
    with psycopg.connect(writing_dsn(), autocommit=True) as connection:
        say("replaying what was written until then")

        def over() -> bool:
            return connection.execute("SELECT pg_is_in_recovery()").fetchone() == (False,)

        if not wait_until(over, seconds=RESTORE_SECONDS_MAX):
            raise BackupError("Recovery takes too long; its log is log/postgres.log.")
        for name in TEMPORARY:
            connection.execute(f"ALTER SYSTEM RESET {name}".encode())
