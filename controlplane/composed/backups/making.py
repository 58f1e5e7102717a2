"""Making a backup: everything is of one snapshot, whoever writes meanwhile."""

import shutil
import subprocess
from pathlib import Path

import psycopg
from django.conf import settings
from django.db.migrations.loader import MigrationLoader

from controlplane.composed.backups import secret_store
from controlplane.composed.backups.archive import (
    DATABASE,
    FORMAT,
    Manifest,
    check_room,
    file_facts,
    new_backup,
    write_manifest,
)
from controlplane.composed.backups.facts import facts_of
from controlplane.composed.backups.programs import program, reading_dsn, run
from controlplane.embedded.processes import Say
from controlplane.settings.secret_files import FROM_VARIABLES

DUMP_SECONDS_MAX = 6 * 3_600.0
LOCK_WAIT = "30s"
GIT_SECONDS_MAX = 5.0
# A snapshot for others to read from lasts as long as its transaction.
SESSION = (
    f"-c statement_timeout={DUMP_SECONDS_MAX:.0f}s -c idle_in_transaction_session_timeout=0"
    " -c timezone=UTC"
)
MIGRATIONS = "SELECT app || '.' || name FROM django_migrations ORDER BY 1"


def make_backup(folder: Path, passphrase: str | None, say: Say) -> Manifest:
    """Publish a backup in the folder; without a passphrase secrets are left out.

    Raises BackupError, and leaves nothing then.
    """
    with new_backup(folder) as partial:
        check_room(partial)
        dsn = reading_dsn()
        with psycopg.connect(dsn, options=SESSION) as connection:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            connection.read_only = True
            snapshot, taken_at = connection.execute(
                "SELECT pg_export_snapshot(), transaction_timestamp()"
            ).fetchone() or ("", None)
            say(f"snapshot of {taken_at:%Y-%m-%d %H:%M:%S} UTC; counting rows")
            facts = facts_of(connection)
            say(f"{sum(facts.tables.values())} rows in {len(facts.tables)} tables; dumping")
            _dump(partial / DATABASE, dsn, snapshot, connection.info.server_version, say)
            migrations = [name for (name,) in connection.execute(MIGRATIONS)]
            exports = [key.hex for (key,) in connection.execute("SELECT id FROM exports")]
            postgresql = str(connection.info.parameter_status("server_version"))
        copied = _copy_exports(exports, partial / "exports")
        say(f"{copied} exported files copied")
        if passphrase is None:
            say("secrets are LEFT OUT: keep them yourself")
        else:
            say(f"{secret_store.seal_secrets(partial, passphrase)} secrets sealed")
        manifest = Manifest(
            format=FORMAT,
            taken_at=taken_at,
            commit=_commit(),
            postgresql=postgresql,
            migrations=migrations,
            facts=facts,
            variables=sorted(FROM_VARIABLES.values()),
            files=file_facts(partial),
        )
        write_manifest(partial, manifest)
    return manifest


def unknown_migrations(manifest: Manifest) -> list[str]:
    """Migrations of the backup that this release does not have: it is older than the backup."""
    loader = MigrationLoader(None)
    known = {f"{app}.{name}" for app, name in loader.disk_migrations}
    return [name for name in manifest.migrations if name not in known]


def _dump(file: Path, dsn: str, snapshot: str, server_version: int, say: Say) -> None:
    argv = [
        *(str(program("pg_dump", server_version // 10_000)), "--format=custom"),
        *(f"--snapshot={snapshot}", f"--lock-wait-timeout={LOCK_WAIT}", f"--file={file}"),
    ]
    run(
        argv,
        dsn,
        seconds_max=DUMP_SECONDS_MAX,
        look=lambda: check_room(file.parent),
        tell=lambda: say(f"{file.stat().st_size >> 20} MiB written"),
    )
    file.chmod(0o600)


def _copy_exports(ids: list[str], target: Path) -> int:
    """After the snapshot: files only grow, and whoever goes on with one cuts what was not sure."""
    target.mkdir(mode=0o700)
    copied = 0
    for name in ids:
        source = settings.EXPORTS_DIR / f"{name}.csv"
        try:
            check_room(target, source.stat().st_size)
            shutil.copyfile(source, target / source.name)
        except FileNotFoundError:
            continue
        (target / source.name).chmod(0o600)
        copied += 1
    return copied


def _commit() -> str | None:
    git = shutil.which("git")
    if git is None or not (settings.BASE_DIR / ".git").exists():
        return None
    command = [git, "-C", str(settings.BASE_DIR), "rev-parse", "HEAD"]
    try:
        told = subprocess.run(command, capture_output=True, text=True, timeout=GIT_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        return None
    return told.stdout.strip() or None
