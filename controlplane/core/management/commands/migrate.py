"""`manage.py migrate` as the owner role, then grants on new tables to the app's role.

A migration that grants or revokes on its table by itself has decided, and is left alone.
"""

from typing import Any

from django.core.management.base import CommandParser
from django.core.management.commands import migrate
from django.db import connections

from controlplane.core.database_roles import APP_ROLE

# Partitions are left out on purpose: a grant on one bypasses the policies of its parent.
UNDECIDED_TABLES = """
    SELECT c.oid::regclass::text, c.relkind FROM pg_class c
    WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p', 'S')
      AND NOT c.relispartition AND c.relacl IS NULL
      AND pg_has_role(current_user, c.relowner, 'USAGE')
    ORDER BY 1
"""


class Command(migrate.Command):
    """Django's command on the owner's connection."""

    def add_arguments(self, parser: CommandParser) -> None:
        """Django's arguments, with the owner's connection as the default."""
        super().add_arguments(parser)
        parser.set_defaults(database="owner")

    def handle(self, *args: Any, **options: Any) -> None:
        """Migrate, then grant."""
        super().handle(*args, **options)
        with connections[options["database"]].cursor() as cursor:
            cursor.execute(UNDECIDED_TABLES)
            for name, kind in cursor.fetchall():
                rights = "USAGE, SELECT" if kind == "S" else "SELECT, INSERT, UPDATE, DELETE"
                what = "SEQUENCE" if kind == "S" else "TABLE"
                cursor.execute(f"GRANT {rights} ON {what} {name} TO {APP_ROLE}")
