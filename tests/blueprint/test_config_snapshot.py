"""The gateways' view of the configuration on a database that already has an older one."""

from pathlib import Path

import pytest
from django.db import connections

from controlplane.blueprint import migrations

pytestmark = pytest.mark.usefixtures("database")
SQL = Path(migrations.__file__).parents[1] / "sql" / "config_snapshot.sql"


def test_its_function_replaces_the_one_that_is_there_and_keeps_its_rights() -> None:
    with connections["owner"].cursor() as cursor:
        cursor.execute(SQL.read_text())
        cursor.execute(
            "SELECT pg_get_userbyid(proowner),"
            " has_function_privilege('sluice_app', oid, 'EXECUTE'),"
            " has_function_privilege('sluice_gateway', oid, 'EXECUTE')"
            " FROM pg_proc WHERE proname = 'config_snapshot'"
        )
        assert cursor.fetchall() == [("sluice_ledger", False, True)]
