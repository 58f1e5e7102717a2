"""Restoring a backup into an empty installation, and proving that what is there now is what was.

Whenever it ends early, the database is either still empty, and it may be tried again, or whole.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import Any

import psycopg
from django.conf import settings
from django.core.management import call_command
from django.db import connections
from psycopg import sql

from controlplane.billing.ledger.services import Swept, sweep_holds
from controlplane.billing.verification.invariants import Verifier
from controlplane.composed.backups import secret_store
from controlplane.composed.backups.archive import (
    DATABASE,
    SECRETS,
    BackupError,
    Manifest,
    check_room,
    read_manifest,
)
from controlplane.composed.backups.facts import differences, facts_of
from controlplane.composed.backups.making import unknown_migrations
from controlplane.composed.backups.programs import program, reading_dsn, run, writing_dsn
from controlplane.core.audit.chain import ChainVerifier, head_from
from controlplane.core.database_roles import LEDGER_ROLE
from controlplane.embedded.processes import Say

RESTORE_SECONDS_MAX = 24 * 3_600.0
NAMED_MAX = 5
HERE = """
    SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace
    AND relkind IN ('r', 'p', 'v', 'm', 'S') ORDER BY relkind = 'S', relname
"""
SIZE = "SELECT pg_database_size(current_database()) >> 20"


def restore_backup(backup: Path, passphrase: str | None, say: Say) -> Manifest:
    """Into the database and folders that the settings name; raises BackupError."""
    say("checking the backup's files")
    manifest = read_manifest(backup)
    if newer := unknown_migrations(manifest):
        raise BackupError(f"The backup is of a newer release than this one: it has {newer[0]}.")
    secrets = _secrets(backup, manifest, passphrase)
    call_command("bootstrap_db", stdout=StringIO())
    _refuse_what_is_there(manifest)
    check_room(settings.DATA_DIR, sum(facts.size for facts in manifest.files.values()))
    _put_exports(backup, manifest)
    secret_store.put_secrets(secrets)
    say(f"{len(secrets)} secrets restored; restoring the database")
    _restore(backup / DATABASE, say)
    _compare(manifest)
    say("rows, sums and the audit's head are as in the backup")
    swept = bring_up(manifest.facts.audit_head)
    say("verify_ledger and verify_audit find nothing")
    _tell(manifest, swept, say)
    return manifest


def _secrets(backup: Path, manifest: Manifest, passphrase: str | None) -> dict[str, str]:
    if passphrase is None:
        return {}
    if SECRETS not in manifest.files:
        raise BackupError(
            "The backup has no secrets. Put those of the installation in place yourself and add "
            "--without-secrets; without them no API key is valid and nothing sealed can be read."
        )
    return secret_store.open_secrets(backup, passphrase)


def _refuse_what_is_there(manifest: Manifest) -> None:
    with psycopg.connect(writing_dsn()) as connection:
        here = [name for (name,) in connection.execute(HERE)]
    if here:
        named = ", ".join(here[:NAMED_MAX])
        raise BackupError(
            f"The database is not empty: it has {len(here)} tables and sequences ({named}, …). "
            "Restore into an empty one."
        )
    known = {Path(name).name for name in manifest.files}
    other = [path.name for path in settings.EXPORTS_DIR.glob("*.csv") if path.name not in known]
    if other:
        raise BackupError(
            f"{settings.EXPORTS_DIR} has files of another installation: "
            f"{', '.join(sorted(other)[:NAMED_MAX])}."
        )


def _put_exports(backup: Path, manifest: Manifest) -> None:
    folder: Path = settings.EXPORTS_DIR
    for name in manifest.files:
        if name.startswith("exports/"):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            target = folder / Path(name).name
            shutil.copyfile(backup / name, target)
            target.chmod(0o600)


def _restore(file: Path, say: Say) -> None:
    dsn = writing_dsn()
    with psycopg.connect(dsn, autocommit=True) as connection, _ledger_may_own(connection):
        major = connection.info.server_version // 10_000
        argv = [str(program("pg_restore", major)), "--exit-on-error", "--single-transaction"]

        def tell() -> None:
            ((size,),) = connection.execute(SIZE).fetchall()
            say(f"the database has {size} MiB")

        run(
            [*argv, str(file)],
            dsn,
            seconds_max=RESTORE_SECONDS_MAX,
            look=lambda: check_room(settings.DATA_DIR),
            tell=tell,
        )


@contextmanager
def _ledger_may_own(connection: psycopg.Connection[Any]) -> Iterator[None]:
    """While functions are handed over to the ledger's role; afterwards it makes nothing."""
    role = sql.Identifier(LEDGER_ROLE)
    connection.execute(sql.SQL("GRANT CREATE ON SCHEMA public TO {}").format(role))
    try:
        yield
    finally:
        connection.execute(sql.SQL("REVOKE CREATE ON SCHEMA public FROM {}").format(role))


def _compare(manifest: Manifest) -> None:
    with psycopg.connect(reading_dsn()) as connection:
        found = list(differences(manifest.facts, facts_of(connection)))
    _refuse("The database is not as in the backup", found)


def bring_up(head: str | None) -> Swept:
    """Bring a database that is back to this release and to now, and verify it; raises BackupError.

    The audit chain must have the head, if one is given.
    """
    call_command("migrate", verbosity=0, interactive=False)
    call_command("make_partitions", stdout=StringIO())
    swept = sweep_holds()
    _verify(head)
    return swept


def _verify(head: str | None) -> None:
    with connections["owner"].cursor() as cursor:
        broken = [
            f"{finding.name} {finding.what}: {'; '.join(finding.examples)}"
            for finding in Verifier(cursor).run()
            if finding.breaches
        ]
        broken += ChainVerifier(cursor).breaches(head_from(head) if head else None)
    _refuse("The restored ledger or audit breaks its invariants", broken)


def _refuse(what: str, found: list[str]) -> None:
    if found:
        lines = "\n".join(found[:NAMED_MAX])
        raise BackupError(f"{what} ({len(found)} findings). Serve nothing from it:\n{lines}")


def _tell(manifest: Manifest, swept: Swept, say: Say) -> None:
    if opened := manifest.facts.open_holds:
        say(
            f"{opened} holds were open: {swept.holds} were past their deadline and have expired; "
            "the worker expires the rest at theirs, unless a node still reports their charge"
        )
    for variable in manifest.variables:
        say(f"{variable} was set where the backup was made: set it to the same value here")
    say(
        f"restored as of {manifest.taken_at:%Y-%m-%d %H:%M:%S} UTC: what was charged, changed or "
        "revoked later is not in it"
    )
