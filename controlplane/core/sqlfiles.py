"""SQL kept in files beside the app that owns it, under `<app>/sql`.

What lies there makes tables, policies, triggers and grants; a migration runs it once. Files in
`owner` and `functions` only create or replace functions, and `migrate` runs all of them each time:
those in `owner` belong to the tables' owner, those in `functions` to the role with policies of its
own. A migration runs such a file too where a trigger needs its function.
"""

from collections.abc import Iterator
from pathlib import Path

from django.apps import apps
from django.db import connections, transaction
from django.db.migrations import RunSQL

from controlplane.core.database_roles import LEDGER_ROLE

FOLDERS = ("owner", "functions")
# What that role makes, nobody else may call unless the file grants it.
AS_LEDGER = f"""
    ALTER DEFAULT PRIVILEGES FOR ROLE {LEDGER_ROLE} REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC;
    GRANT CREATE ON SCHEMA public TO {LEDGER_ROLE};
    SET LOCAL ROLE {LEDGER_ROLE};
    {{}}
    RESET ROLE;
    REVOKE CREATE ON SCHEMA public FROM {LEDGER_ROLE};
"""


def run_sql_file(migration_file: str, name: str) -> RunSQL:
    """An operation that runs `<app>/sql/<name>`; it cannot be undone."""
    return RunSQL(_statements(Path(migration_file).resolve().parents[1] / "sql" / name))


def function_files() -> Iterator[Path]:
    """All files of functions in their order: a file may use what those before it make.

    Apps come as in INSTALLED_APPS, their own folders and files by name.
    """
    for app in apps.get_app_configs():
        for folder in FOLDERS:
            yield from sorted(Path(app.path, "sql", folder).glob("*.sql"))


def replace_functions(database: str) -> None:
    with transaction.atomic(database), connections[database].cursor() as cursor:
        for path in function_files():
            cursor.execute(_statements(path))


def _statements(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    return AS_LEDGER.format(text) if path.parent.name == "functions" else text
