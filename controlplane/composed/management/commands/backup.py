"""`manage.py sluice backup FOLDER`: a backup of the whole installation, while it serves.

Exit status: 0 done, 1 failed and nothing left, 75 another one is being made in this folder.
"""

from argparse import ArgumentTypeError
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import psycopg
from django.core.management.base import BaseCommand, CommandError, CommandParser

from controlplane.composed.backups.archive import (
    BackupBusy,
    BackupError,
    backups,
    remove_older,
)
from controlplane.composed.backups.buckets import SCHEME, Bucket, scratch_folder
from controlplane.composed.backups.making import make_backup
from controlplane.composed.backups.point_in_time import make_base
from controlplane.composed.backups.private_server import answers, private_server
from controlplane.composed.backups.secret_store import sealing_passphrase
from controlplane.embedded.layout import LayoutError
from controlplane.embedded.processes import ServerError

FAILED, BUSY = 1, 75
KEEP_MAX = 10_000


class Command(BaseCommand):
    """Writes nothing into the database."""

    help = "Back up database, exported files and secrets into a new folder below FOLDER."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("folder", help="a folder, or s3://bucket/prefix")
        parser.add_argument("--keep", type=_keep, metavar="N", help="then remove all but N newest")
        parser.add_argument("--without-secrets", action="store_true", help="leave secrets out")
        parser.add_argument(
            "--base",
            action="store_true",
            help="a base backup for recovery to an instant: FOLDER is new, the server runs",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        place: str = options["folder"]
        folder = Path(place).absolute()
        try:
            if options["base"]:
                if place.startswith(SCHEME):
                    raise BackupError("--base writes into a folder; copy that.")
                make_base(folder, self._say)
                return
            bucket = Bucket(place) if place.startswith(SCHEME) else None
            sealing = not options["without_secrets"]
            passphrase = sealing_passphrase() if sealing else None
            with nullcontext() if answers() else private_server(self._say):
                if bucket is None:
                    make_backup(folder, passphrase, self._say)
                else:
                    self._send(bucket, passphrase)
            if keep := options["keep"]:
                for old in bucket.remove_older(keep) if bucket else remove_older(folder, keep):
                    self._say(f"removed {old}")
        except BackupBusy as error:
            raise CommandError(str(error), returncode=BUSY) from error
        except (BackupError, ServerError, LayoutError, OSError, psycopg.Error) as error:
            raise CommandError(str(error), returncode=FAILED) from error

    def _send(self, bucket: Bucket, passphrase: str | None) -> None:
        with scratch_folder() as folder:
            make_backup(folder, passphrase, self._say)
            (backup,) = backups(folder)
            self._say(f"copying {backup.name} to {bucket.url}")
            bucket.put_backup(backup)

    def _say(self, message: str) -> None:
        self.stdout.write(message)
        self.stdout.flush()


def _keep(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= KEEP_MAX:
        raise ArgumentTypeError(f"--keep must be 1 to {KEEP_MAX}, not {text!r}")
    return int(text)
