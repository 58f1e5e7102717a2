"""`manage.py migrate` as the owner role, bounded in how long it may wait for a lock; then functions
and grants. One at a time: a second one waits for the first.

A migration decides about its own tables by granting or revoking. About those of others, and a few
of ours that are each one person's, it is decided here; about any other table someone has to.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.core.management.commands import migrate
from django.db import OperationalError, connections
from psycopg.errors import LockNotAvailable

from controlplane.core.database_roles import APP_ROLE
from controlplane.core.sqlfiles import replace_functions

# A change of a table waits behind who reads it, and everybody after waits behind the change.
BOUNDED = "SET lock_timeout = '3s'", "RESET lock_timeout"
# A lock of the session, which ends with its connection.
ALONE = (
    "SELECT pg_advisory_lock(hashtext('sluice migrate'))",
    "SELECT pg_advisory_unlock(hashtext('sluice migrate'))",
)
LOCK_TRIES_MAX = 10
LOCK_RETRY_S = 2.0
# Read and written by pages and jobs, whoever's rows they are.
OPEN_TABLES = frozenset(
    {
        *("auth_group", "auth_group_permissions", "auth_permission", "axes_accessattempt"),
        *("axes_accessattemptexpiration", "axes_accessfailurelog", "axes_accesslog"),
        *("django_content_type", "django_migrations", "django_session"),
        *("outside_identities", "recovery_codes", "second_factors", "setup_links"),
        "user_sessions",
    }
)
# Partitions are left out on purpose: a grant on one bypasses the policies of its parent.
UNDECIDED_TABLES = """
    SELECT c.oid::regclass::text, c.relkind, coalesce(d.refobjid::regclass::text, '')
    FROM pg_class c
    LEFT JOIN pg_depend d ON d.objid = c.oid AND c.relkind = 'S' AND d.deptype IN ('a', 'i')
        AND d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_class'::regclass
    WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p', 'S')
      AND NOT c.relispartition AND c.relacl IS NULL
      AND pg_has_role(current_user, c.relowner, 'USAGE')
    ORDER BY 1
"""


class Command(migrate.Command):
    """Django's command on the owner's connection."""

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.set_defaults(database="owner")

    def handle(self, *args: Any, **options: Any) -> None:
        """Migrate, then grant; raises CommandError for a table that nobody has decided about."""
        database = options["database"]
        with _between(database, *ALONE), _between(database, *BOUNDED):
            self._migrate(*args, **options)
        with connections[database].cursor() as cursor:
            cursor.execute(UNDECIDED_TABLES)
            found = cursor.fetchall()
            undecided = [name for name, _, of in found if (of or name) not in OPEN_TABLES]
            if undecided:
                raise CommandError(
                    f"Access is undecided for {', '.join(undecided)}: grant or revoke it in the "
                    "migration that creates it."
                )
            for name, kind, _ in found:
                rights = "USAGE, SELECT" if kind == "S" else "SELECT, INSERT, UPDATE, DELETE"
                what = "SEQUENCE" if kind == "S" else "TABLE"
                cursor.execute(f"GRANT {rights} ON {what} {name} TO {APP_ROLE}")

    def _migrate(self, *args: Any, **options: Any) -> None:
        """What is done stays done: the next try goes on with the migration that met a lock."""
        for left in reversed(range(LOCK_TRIES_MAX)):
            try:
                super().handle(*args, **options)
                # Of one app's tables alone, or of none, most functions cannot be made.
                if not (options["app_label"] or options["plan"]):
                    replace_functions(options["database"])
            except OperationalError as error:
                if not isinstance(error.__cause__, LockNotAvailable):
                    raise
                if not left:
                    raise CommandError(
                        "A table stayed locked; try again when there is less traffic."
                    ) from error
                self.stdout.write(f"A table is locked; retrying, {left} attempts left.")
                time.sleep(LOCK_RETRY_S)
            else:
                return


@contextmanager
def _between(database: str, before: str, after: str) -> Iterator[None]:
    """Statements on the session, around what is done on it."""
    with connections[database].cursor() as cursor:
        cursor.execute(before)
    try:
        yield
    finally:
        with connections[database].cursor() as cursor:
            cursor.execute(after)
