"""Backups in S3-compatible storage: made in a folder of their own and copied there, and fetched
whole before they are restored, which checks the digest of every file.

Credentials and region are AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_REGION, as clients of S3
read them. Such a store renames nothing: a backup is whole once its manifest is there, which is
written last and removed first.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings

from controlplane.composed.backups.archive import (
    CHUNK_BYTES,
    FILE_NAME,
    MANIFEST,
    NAME,
    BackupError,
    check_room,
)
from controlplane.composed.backups.making import DUMP_SECONDS_MAX

SCHEME = "s3://"
REGION = "us-east-1"
RETRIES_MAX = 5


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Where a backup is on its way, on the disk of the data folder; gone at the end."""
    with TemporaryDirectory(prefix=".backup-", dir=settings.DATA_DIR) as folder:
        yield Path(folder)


class Bucket:
    """`s3://bucket/prefix`; all it does raises BackupError with the store's own words."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if not parts.hostname or parts.query or parts.username:
            raise BackupError(f"{url} must be like s3://bucket/prefix.")
        try:
            import obstore.exceptions
            import obstore.store
        except ImportError as error:
            raise BackupError("s3:// needs obstore: pip install 'sluice[s3]'.") from error
        self.url, self._obstore = url.rstrip("/"), obstore
        ca = settings.CA_FILE
        trusted = {"root_certificate": Path(ca).read_text()} if ca else {}
        given = {"endpoint": settings.S3_ENDPOINT} if settings.S3_ENDPOINT else {}
        with self._told():
            self._store: Any = obstore.store.S3Store(
                parts.netloc,
                prefix=parts.path.strip("/") or None,
                region=os.environ.get("AWS_REGION", REGION),
                client_options={
                    "timeout": timedelta(seconds=DUMP_SECONDS_MAX),
                    "allow_http": settings.S3_ENDPOINT.startswith("http:"),
                    **trusted,
                },
                retry_config={"max_retries": RETRIES_MAX},
                **given,
            )

    def put_backup(self, backup: Path) -> None:
        """Copy a backup of a folder here, and see that every file is there with its size."""
        files = sorted(path for path in backup.rglob("*") if path.is_file())
        # A backup counts once its manifest is there.
        for part in ([path for path in files if path.name != MANIFEST], [backup / MANIFEST]):
            with self._told():
                for path in part:
                    with path.open("rb") as file:
                        self._obstore.put(self._store, str(path.relative_to(backup.parent)), file)
                there = dict(self._objects(backup.name))
            for path in part:
                if there.get(str(path.relative_to(backup.parent))) != path.stat().st_size:
                    raise BackupError(f"{self.url} has no whole {path.name} of {backup.name}.")

    def fetch_backup(self, folder: Path) -> Path:
        """Copy the newest backup, or the one that this is, into the folder; the digests in its
        manifest are not checked here.
        """
        with self._told():
            whole = self._whole()
            if not whole:
                raise BackupError(f"{self.url} is no backup and contains none.")
            target = folder / (whole[-1] or "backup")
            for key, size in self._objects(whole[-1]):
                name = key.removeprefix(f"{whole[-1]}/")
                if name == MANIFEST or FILE_NAME.fullmatch(name):
                    check_room(folder, size)
                    (target / name).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                    self._fetch(key, target / name)
        return target

    def remove_older(self, keep: int) -> list[str]:
        """Remove all but the newest `keep` whole backups; returns what was removed."""
        with self._told():
            old = [name for name in self._whole() if name][:-keep]
            for name in old:
                self._obstore.delete(self._store, f"{name}/{MANIFEST}")
                self._obstore.delete(self._store, [key for key, _ in self._objects(name)])
        return old

    def _whole(self) -> list[str]:
        """Names of whole backups, oldest first; one without a name where this itself is one."""
        found = self._obstore.list_with_delimiter(self._store)
        if any(each["path"] == MANIFEST for each in found["objects"]):
            return [""]
        names = [name for name in found["common_prefixes"] if NAME.fullmatch(name)]
        return sorted(name for name in names if f"{name}/{MANIFEST}" in dict(self._objects(name)))

    def _objects(self, name: str) -> Iterator[tuple[str, int]]:
        for page in self._obstore.list(self._store, prefix=name or None):
            yield from ((each["path"], each["size"]) for each in page)

    def _fetch(self, key: str, target: Path) -> None:
        with target.open("xb") as out:
            for part in self._obstore.get(self._store, key).stream(min_chunk_size=CHUNK_BYTES):
                out.write(part)
        target.chmod(0o600)

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except (self._obstore.exceptions.BaseError, FileNotFoundError, ValueError) as error:
            told = str(error).split("\n", 1)[0]
            raise BackupError(f"{self.url}: {told}") from error
