"""Exported files on disk: one per export, named by its id, for this account's eyes only."""

import fcntl
import hashlib
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from django.conf import settings

CHUNK_BYTES = 1 << 18
# A full disk would stop the database that shares it.
FREE_BYTES_MIN = 1 << 30


class FileBusy(Exception):
    """Another process writes this file."""


class FileLost(Exception):
    """The file is not there, or shorter than it was."""


class DiskFull(OSError):
    """Too little is left on the disk."""


class ExportFile:
    """An open file whose first `size` bytes are known; `digest` is of all of it."""

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self._hash = hashlib.sha256()
        self.size = 0

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()

    def go_on_at(self, size: int) -> None:
        """Cut the file to so many bytes and take up their digest; raises FileLost."""
        if os.fstat(self._handle).st_size < size:
            raise FileLost
        os.ftruncate(self._handle, size)
        os.lseek(self._handle, 0, os.SEEK_SET)
        while chunk := os.read(self._handle, CHUNK_BYTES):
            self._hash.update(chunk)
        self.size = size

    def write(self, data: bytes) -> None:
        """Append; raises OSError."""
        if shutil.disk_usage(self._handle).free < FREE_BYTES_MIN + len(data):
            raise DiskFull("Not enough disk space.")
        view = memoryview(data)
        while view:
            view = view[os.write(self._handle, view) :]
        self._hash.update(data)
        self.size += len(data)

    def flush(self) -> None:
        """Return once the bytes are on the disk."""
        os.fdatasync(self._handle)


@contextmanager
def open_export(export_id: uuid.UUID) -> Iterator[ExportFile]:
    """The file of an export, made where it is missing, locked while it is open; raises FileBusy."""
    path = _path(export_id)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise FileBusy from error
        yield ExportFile(handle)
    finally:
        os.close(handle)


def read_export(export_id: uuid.UUID) -> Iterator[bytes]:
    """The file in chunks; raises FileLost at the first where there is none."""
    try:
        source = _path(export_id).open("rb")
    except FileNotFoundError as error:
        raise FileLost from error
    with source:
        while chunk := source.read(CHUNK_BYTES):
            yield chunk


def export_size(export_id: uuid.UUID) -> int | None:
    """Bytes on the disk; None where there is no file."""
    try:
        return _path(export_id).stat().st_size
    except FileNotFoundError:
        return None


def remove_export(export_id: uuid.UUID) -> None:
    _path(export_id).unlink(missing_ok=True)


def _path(export_id: uuid.UUID) -> Path:
    folder: Path = settings.EXPORTS_DIR
    return folder / f"{export_id.hex}.csv"
