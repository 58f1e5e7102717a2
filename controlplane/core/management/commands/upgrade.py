"""`sluice upgrade`: bring the database to this release while the one before it serves.

Exit status: 0 done or nothing to do, 1 not possible, and nothing was changed.
"""

from typing import Any

from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import OperationalError, connections
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.loader import MigrationLoader

from controlplane.embedded.doctor import servers
from inference.contract.version import VERSION

OWNER = "owner"


class Command(BaseCommand):
    """Migrates forward alone: what is newer than this release is refused."""

    help = "Bring the database to this release; --check only says what would be done."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--check", action="store_true", help="only say what would be done")

    def handle(self, *args: Any, **options: Any) -> None:
        problems = [each for each in servers() if each.fix]
        for each in problems:
            self.stderr.write(f"{each.subject}: {each.told}. {each.fix}")
        if problems:
            raise CommandError(f"{len(problems)} to mend first.")
        try:
            pending = self._pending()
        except OperationalError as error:
            raise CommandError(f"The database cannot be read: {error}") from error
        self.stdout.write(f"Sluice {VERSION}: {len(pending)} migrations to apply.")
        for name in pending:
            self.stdout.write(f"  {name}")
        if options["check"]:
            return
        call_command("migrate", interactive=False, verbosity=0, stdout=self.stdout)
        self.stdout.write(
            "The database is ready. Restart workers and beat, gateways one by one, then web."
        )

    def _pending(self) -> list[str]:
        """Names of what is not applied yet, in order; raises CommandError where the database has
        what this release does not know.
        """
        connection = connections[OWNER]
        executor = MigrationExecutor(connection)
        loader: MigrationLoader = executor.loader
        ours = {app for app, _ in loader.disk_migrations}
        newer = sorted(
            ".".join(key)
            for key in loader.applied_migrations
            if key[0] in ours and key not in loader.disk_migrations
        )
        if newer:
            raise CommandError(
                f"The database is of a newer release, which made {', '.join(newer)}. Install that "
                "release, or restore a backup made before it."
            )
        plan = executor.migration_plan(loader.graph.leaf_nodes())
        return [f"{migration.app_label}.{migration.name}" for migration, _ in plan]
