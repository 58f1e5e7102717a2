"""Backups as files, and one of a PostgreSQL of one's own: whole, checked, or not there at all."""

import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import quote

import msgspec
import psycopg
import pytest
from django.conf import settings
from django.core.management import CommandError, call_command

from controlplane.bridge.money.ledger import PostgresLedger
from controlplane.composed.backups import archive, secret_store
from controlplane.composed.backups.archive import (
    DATABASE,
    MANIFEST,
    SECRETS,
    BackupBusy,
    BackupError,
    backups,
    find_backup,
    new_backup,
    read_manifest,
    remove_older,
)
from controlplane.composed.backups.facts import differences
from controlplane.core.database_roles import password_of
from tests.support.money import ORG_A, add_budget, dsn, make_hold, settlement_of, superuser_dsn
from tests.support.sluice_run import environment, manage
from tests.support.waiting import until

COMMAND_SECONDS_MAX = 120.0
RESTORED, READER, PASSWORD = "sluice_restored", "sluice_backup", "a-password-of-the-tests"
PASSPHRASE = "a passphrase of the tests only"

# What keeps tenants apart and the ledger as it is; the grants also say who owns what.
POLICIES = """
    SELECT tablename, policyname, cmd, roles::text, qual, with_check FROM pg_policies ORDER BY 1, 2
"""
GRANTS = """
    SELECT relname, relrowsecurity, relforcerowsecurity, relowner::regrole::text,
           (SELECT array_agg(a::text ORDER BY a::text) FROM unnest(relacl) AS a) FROM pg_class
    WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p', 'S')
    UNION ALL
    SELECT oid::regprocedure::text, prosecdef, true, proowner::regrole::text,
           (SELECT array_agg(a::text ORDER BY a::text) FROM unnest(proacl) AS a) FROM pg_proc
    WHERE pronamespace = 'public'::regnamespace ORDER BY 1, 2
"""
TRIGGERS = """
    SELECT tgrelid::regclass::text, tgname, tgenabled::text, tgtype, tgfoid::regproc::text
    FROM pg_trigger WHERE NOT tgisinternal ORDER BY 1, 2
"""


def _restored() -> psycopg.Connection:
    return psycopg.connect(superuser_dsn(), dbname=RESTORED)


def whole(folder: Path, day: int) -> Path:
    """Looks like a backup of that day."""
    made = folder / f"sluice-202601{day:02}T000000Z"
    made.mkdir()
    (made / MANIFEST).write_text("{}")
    return made


def test_a_backup_that_fails_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), new_backup(tmp_path) as partial:
        (partial / DATABASE).write_text("half")
        raise RuntimeError
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]


def test_one_backup_at_a_time_and_what_a_killed_one_left_is_removed(tmp_path: Path) -> None:
    left = tmp_path / f"sluice-20260101T000000Z{archive.PARTIAL}"
    left.mkdir()
    with new_backup(tmp_path) as partial:
        (partial / MANIFEST).write_text("{}")
        assert not left.exists() and backups(tmp_path) == []
        with pytest.raises(BackupBusy), new_backup(tmp_path):
            pass
    assert len(backups(tmp_path)) == 1


def test_the_newest_are_kept_and_foreign_folders_stay(tmp_path: Path) -> None:
    made = [whole(tmp_path, day) for day in (1, 2, 3)]
    (tmp_path / "sluice-notes").mkdir()
    assert remove_older(tmp_path, 2) == [made[0].name]
    assert backups(tmp_path) == made[1:] and find_backup(tmp_path) == made[2]
    assert find_backup(made[1]) == made[1] and (tmp_path / "sluice-notes").exists()
    with pytest.raises(BackupError, match="contains none"):
        find_backup(tmp_path / "sluice-notes")


def test_secrets_open_with_their_passphrase_alone(tmp_path: Path) -> None:
    folder = settings.DATA_DIR / "secrets"
    names = {path.name for path in folder.glob("[!.]*")}
    secret_store.seal_secrets(tmp_path, PASSPHRASE)
    opened = secret_store.open_secrets(tmp_path, PASSPHRASE)
    assert opened["key-pepper"] == (folder / "key-pepper").read_text().strip()
    assert opened.keys() == {name for name in names if not name.startswith(("postgres-", "redis"))}
    assert opened["key-pepper"].encode() not in (tmp_path / SECRETS).read_bytes()
    with pytest.raises(BackupError, match="not the one"):
        secret_store.open_secrets(tmp_path, PASSPHRASE + "!")
    with pytest.raises(BackupError, match="no name"):
        secret_store.put_secrets({"../key": "x"})


def test_secrets_are_sealed_whole_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "BACKUP_PASSPHRASE", PASSPHRASE[:8])
    with pytest.raises(BackupError, match="at least 16 characters"):
        secret_store.sealing_passphrase()
    monkeypatch.setattr(settings, "BACKUP_PASSPHRASE", PASSPHRASE)
    assert secret_store.sealing_passphrase() == PASSPHRASE
    monkeypatch.setattr(settings, "SLUICE_ROLE", "setup")
    with pytest.raises(BackupError, match="not setup"):
        secret_store.sealing_passphrase()


@pytest.fixture
async def ledger(database: str) -> AsyncIterator[PostgresLedger]:
    made = PostgresLedger(dsn())
    made.start()
    await until(lambda: not made.away)
    yield made
    await made.close()


@pytest.fixture
def reader(database: str) -> Iterator[None]:
    """What an administrator makes: a role that sees every row, and an empty database."""
    with psycopg.connect(superuser_dsn(), autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {READER} LOGIN BYPASSRLS PASSWORD '{PASSWORD}'".encode())
        connection.execute(f"GRANT pg_read_all_data TO {READER}".encode())
        connection.execute(f"CREATE DATABASE {RESTORED} OWNER sluice_owner".encode())
        yield
        connection.execute(f"DROP DATABASE {RESTORED} WITH (FORCE)".encode())
        connection.execute(f"DROP ROLE {READER}".encode())


def own_server(database: str) -> dict[str, str]:
    """The variables that name a database on a server of one's own."""
    entries = {"DATABASE_URL": "default", "DATABASE_OWNER_URL": "owner",
               "DATABASE_GATEWAY_URL": "gateway"}  # fmt: skip
    logins = {
        name: (settings.DATABASES[alias]["USER"], password_of(settings.DATABASES[alias]))
        for name, alias in entries.items()
    }
    logins["DATABASE_BACKUP_URL"] = (READER, PASSWORD)
    host = quote(settings.DATABASES["default"]["HOST"], safe="")
    return {
        name: f"postgres://{user}:{quote(password, safe='')}@/{database}?host={host}"
        for name, (user, password) in logins.items()
    }


def sluice(*arguments: str, data: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        manage(*arguments, "--without-secrets"),
        env=environment(data, **variables),
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS_MAX,
    )


async def test_a_server_of_ones_own(
    ledger: PostgresLedger, reader: None, database: str, tmp_path: Path
) -> None:
    add_budget(ORG_A, 1_000, scope="organization")
    settled, overdue, open_ = (make_hold(50, ORG_A, expires_s=s) for s in (60, 0, 3_600))
    for hold in (settled, overdue, open_):
        await ledger.hold(hold)
    await ledger.settle(settlement_of(settled, 41))
    here, kept = own_server(database), tmp_path / "kept"
    blind = {name: url for name, url in here.items() if name != "DATABASE_BACKUP_URL"}
    refused = sluice("backup", str(kept), data=tmp_path / "a", **blind)
    assert refused.returncode == 1 and "DATABASE_BACKUP_URL" in refused.stderr
    made = sluice("backup", str(kept), data=tmp_path / "a", **here)
    assert made.returncode == 0, made.stderr
    assert "LEFT OUT" in made.stdout
    (backup,) = backups(kept)
    facts = read_manifest(backup).facts
    assert facts.accounts[f"receivable:{ORG_A}"].debit_nano == "41"
    assert (facts.open_holds, facts.held_nano) == (2, "100")

    full = sluice("restore", str(kept), data=tmp_path / "b", **here)
    assert full.returncode == 1 and "is not empty" in full.stderr
    restored = sluice("restore", str(kept), data=tmp_path / "b", **own_server(RESTORED))
    assert restored.returncode == 0, restored.stdout + restored.stderr
    assert "2 holds were open: 1 were past their deadline" in restored.stdout

    with psycopg.connect(superuser_dsn()) as before, _restored() as after:
        for guards in (POLICIES, GRANTS, TRIGGERS):
            assert before.execute(guards).fetchall() == after.execute(guards).fetchall()

    worse = msgspec.structs.replace(facts, held_nano="101", tables={**facts.tables, "budgets": 7})
    assert [line.partition(":")[0] for line in differences(facts, worse)] == [
        "table budgets", "held_nano",
    ]  # fmt: skip
    with (backup / DATABASE).open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"!")
    with pytest.raises(BackupError, match="is damaged"):
        read_manifest(backup)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("backup", "s3://b/p", "--base"), "--base writes into a folder"),
        (("restore", "s3://b/p", "--until", "2026-11-29T12:00:00+00:00"), "--until reads a folder"),
    ],
)
def test_recovery_to_an_instant_is_refused_of_storage(words: tuple[str, ...], told: str) -> None:
    with pytest.raises(CommandError, match=told):
        call_command(*words)
