"""`manage.py sluice restore FOLDER`: a backup, or a folder's newest, into an empty installation.

Exit status: 0 restored and verified, 1 otherwise.
"""

from argparse import ArgumentTypeError
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg
from django.core.management.base import BaseCommand, CommandError, CommandParser

from controlplane.composed.backups.archive import BackupError, find_backup
from controlplane.composed.backups.buckets import SCHEME, Bucket, scratch_folder
from controlplane.composed.backups.point_in_time import restore_until
from controlplane.composed.backups.private_server import private_server
from controlplane.composed.backups.restoring import restore_backup
from controlplane.composed.backups.secret_store import sealing_passphrase
from controlplane.embedded.layout import LayoutError
from controlplane.embedded.processes import ServerError


class Command(BaseCommand):
    """Starts the embedded PostgreSQL by itself and stops it again."""

    help = "Restore a backup into an empty installation and verify it."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("folder", help="a folder, or s3://bucket/prefix")
        parser.add_argument("--without-secrets", action="store_true", help="leave secrets as here")
        parser.add_argument(
            "--until",
            type=_instant,
            metavar="TIME",
            help="FOLDER is a base backup: replay the archived WAL to TIME (ISO 8601)",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            if options["until"]:
                if options["folder"].startswith(SCHEME):
                    raise BackupError("--until reads a folder; copy the base backup into one.")
                restore_until(Path(options["folder"]).absolute(), options["until"], self._say)
                return
            sealed = not options["without_secrets"]
            passphrase = sealing_passphrase() if sealed else None
            with self._found(options["folder"]) as backup, private_server(self._say):
                restore_backup(backup, passphrase, self._say)
        except (BackupError, ServerError, LayoutError, OSError, psycopg.Error) as error:
            raise CommandError(str(error)) from error

    @contextmanager
    def _found(self, place: str) -> Iterator[Path]:
        if place.startswith(SCHEME):
            bucket = Bucket(place)
            with scratch_folder() as folder:
                backup = bucket.fetch_backup(folder)
                self._say(f"restoring {backup.name} of {bucket.url}")
                yield backup
        else:
            backup = find_backup(Path(place).absolute())
            self._say(f"restoring {backup}")
            yield backup

    def _say(self, message: str) -> None:
        self.stdout.write(message)
        self.stdout.flush()


def _instant(text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise ArgumentTypeError(f"--until must be like 2026-11-29T12:00:00+00:00, not {text!r}")
    return found
