"""Which tables tell gateways of changes to the configuration."""

import pytest
from django.db import connections

pytestmark = pytest.mark.usefixtures("database")


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
