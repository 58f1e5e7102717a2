"""The gateways' view of the configuration on a database that already has an older one."""

from pathlib import Path

import pytest
from django.db import connections

from controlplane.blueprint import migrations

pytestmark = pytest.mark.usefixtures("database")
FOLDER = Path(migrations.__file__).parents[1] / "sql"
READ = ("config_budgets", "config_keys", "config_now", "config_parts", "config_projects")


def test_its_functions_replace_those_that_are_there_and_keep_their_rights() -> None:
    with connections["owner"].cursor() as cursor:
        for name in ("config_snapshot.sql", "config_rows.sql"):
            cursor.execute((FOLDER / name).read_text())
        cursor.execute(
            "SELECT pg_get_userbyid(proowner),"
            " has_function_privilege('sluice_app', oid, 'EXECUTE'),"
            " has_function_privilege('sluice_gateway', oid, 'EXECUTE')"
            " FROM pg_proc WHERE proname = ANY (%s)",
            [[*READ, "config_prompts"]],
        )
        assert cursor.fetchall() == [("sluice_ledger", False, True)] * (len(READ) + 1)


def test_every_table_that_tells_of_changes_leaves_marks() -> None:
    with connections["owner"].cursor() as cursor:
        cursor.execute(
            "SELECT DISTINCT c.relname::text FROM pg_trigger t"
            " JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_proc p ON p.oid = t.tgfoid"
            " WHERE p.proname = 'config_changed' ORDER BY 1"
        )
        tables = [name for (name,) in cursor.fetchall()]
        assert len(tables) > 10
        for table in tables:
            # Raises for a table that it does not know.
            cursor.execute("SELECT kind FROM config_marks_of(%s, '{}')", [table])
            assert cursor.fetchall(), table
