"""A backup as files: a folder with a manifest, written under another name and moved when whole."""

import fcntl
import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec

FORMAT = 1
MANIFEST, DATABASE, SECRETS = "manifest.json", "database.dump", "secrets.sealed"
NAME = re.compile(r"sluice-\d{8}T\d{6}Z")
FILE_NAME = re.compile(r"database\.dump|secrets\.sealed|exports/[0-9a-f]{32}\.csv")
PARTIAL = ".partial"
MANIFEST_BYTES_MAX = 64 * 2**20
CHUNK_BYTES = 1 << 20
# A full disk would stop the database that shares it.
FREE_BYTES_MIN = 1 << 30


class BackupError(Exception):
    """A backup cannot be made or restored; the message says why and what to do."""


class BackupBusy(BackupError):
    """Another backup is being made in this folder."""


class AccountSums(msgspec.Struct, frozen=True):
    """What was posted to one account in all, in nano-USD; texts, since JSON's numbers are short."""

    debit_nano: str
    credit_nano: str


class LedgerFacts(msgspec.Struct, frozen=True):
    """What a restored database must agree with, all of one snapshot."""

    tables: dict[str, int]
    accounts: dict[str, AccountSums]
    open_holds: int
    held_nano: str
    audit_head: str | None


class FileFacts(msgspec.Struct, frozen=True):
    size: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True):
    """`taken_at` is the database's time of the snapshot; `commit` is None where it is not known."""

    format: int
    taken_at: datetime
    commit: str | None
    postgresql: str
    migrations: list[str]
    facts: LedgerFacts
    # Secrets that came from variables are in no backup: their names.
    variables: list[str]
    files: dict[str, FileFacts]


@contextmanager
def new_backup(folder: Path) -> Iterator[Path]:
    """A folder to fill, published under its time when the block ends; gone where it fails."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (folder / ".lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BackupBusy(f"Another backup is being made in {folder}.") from error
        for left in folder.glob(f"*{PARTIAL}"):
            shutil.rmtree(left)
        final = folder / f"sluice-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
        partial = final.with_name(final.name + PARTIAL)
        partial.mkdir(mode=0o700)
        try:
            yield partial
            for path in (*partial.rglob("*"), partial):
                _sync(path)
            partial.rename(final)
            _sync(folder)
        finally:
            shutil.rmtree(partial, ignore_errors=True)


def backups(folder: Path) -> list[Path]:
    """Whole backups of a folder, oldest first."""
    return sorted(
        path for path in folder.glob("sluice-*")
        if NAME.fullmatch(path.name) and (path / MANIFEST).is_file()
    )  # fmt: skip


def remove_older(folder: Path, keep: int) -> list[str]:
    """Remove all but the newest `keep` whole backups; returns what was removed."""
    old = backups(folder)[:-keep]
    for path in old:
        # Without its manifest a folder is no backup any more, should this end half way.
        (path / MANIFEST).unlink()
        shutil.rmtree(path)
    return [path.name for path in old]


def file_facts(partial: Path) -> dict[str, FileFacts]:
    """Size and digest of every file below."""
    files = sorted(path for path in partial.rglob("*") if path.is_file())
    return {str(path.relative_to(partial)): facts_of_path(path) for path in files}


def write_manifest(partial: Path, manifest: Manifest) -> None:
    text = msgspec.json.format(msgspec.json.encode(manifest))
    (partial / MANIFEST).write_bytes(text + b"\n")


def find_backup(folder: Path) -> Path:
    """The backup that the folder is, or the newest in it; raises BackupError."""
    if (folder / MANIFEST).is_file():
        return folder
    found = backups(folder) if folder.is_dir() else []
    if not found:
        raise BackupError(f"{folder} is no backup and contains none.")
    return found[-1]


def read_manifest(backup: Path) -> Manifest:
    """The manifest, once every file is as it says; raises BackupError naming one that is not."""
    file = backup / MANIFEST
    if file.stat().st_size > MANIFEST_BYTES_MAX:
        raise BackupError(f"{file} is too large to be a manifest.")
    try:
        manifest = msgspec.json.decode(file.read_bytes(), type=Manifest)
    except msgspec.MsgspecError as error:
        raise BackupError(f"{file} cannot be read: {error}.") from error
    if manifest.format != FORMAT:
        raise BackupError(f"{file} has format {manifest.format}, this release reads {FORMAT}.")
    if DATABASE not in manifest.files:
        raise BackupError(f"{file} names no {DATABASE}.")
    for name, facts in manifest.files.items():
        path = backup / name
        if not FILE_NAME.fullmatch(name) or not path.is_file():
            raise BackupError(f"{name} is missing in {backup}.")
        if facts_of_path(path) != facts:
            raise BackupError(f"{path} is damaged: its SHA-256 is not that of the manifest.")
    return manifest


def check_room(folder: Path, more: int = 0) -> None:
    """Raises BackupError where too little disk is left after so many bytes more."""
    free = shutil.disk_usage(folder).free
    if free < FREE_BYTES_MIN + more:
        raise BackupError(f"Not enough disk space in {folder}: {free >> 20} MiB are free.")


def facts_of_path(path: Path) -> FileFacts:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
        return FileFacts(file.tell(), digest.hexdigest())


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
