"""Functions are what their files say after each `migrate`, and whose they are stays as it is."""

from __future__ import annotations

import asyncio

import psycopg
import pytest
from django.core.management import call_command
from django.db import ProgrammingError

from tests.support.money import rows, superuser_dsn
from tests.support.orm import orm
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("database")
MIGRATING = "hashtext('sluice migrate')"
FUNCTIONS = """
    SELECT oid::regprocedure::text, proowner::regrole::text, proacl::text, pg_get_functiondef(oid)
    FROM pg_proc WHERE pronamespace = 'public'::regnamespace ORDER BY 1
"""


def _migrate() -> None:
    call_command("migrate", verbosity=0)


def test_migrating_again_changes_no_function() -> None:
    before = rows(FUNCTIONS)
    assert len(before) > 80
    _migrate()
    assert rows(FUNCTIONS) == before


def test_another_body_and_other_rights_become_those_of_the_file() -> None:
    before = rows(FUNCTIONS)
    rows(
        "CREATE OR REPLACE FUNCTION ledger_held_differences() RETURNS TABLE (budget uuid,"
        " scope text, counted bigint, summed bigint)"
        " LANGUAGE sql AS 'SELECT null::uuid, null, 1::bigint, 1::bigint'"
    )
    rows("REVOKE ALL ON FUNCTION ledger_held_differences FROM sluice_app")
    rows("DROP FUNCTION ledger_journal")
    assert rows(FUNCTIONS) != before
    _migrate()
    assert rows(FUNCTIONS) == before


def test_what_no_file_grants_nobody_may_call() -> None:
    open_to_all = rows(
        "SELECT proname FROM pg_proc WHERE pronamespace = 'public'::regnamespace"
        " AND (prosecdef OR proowner = 'sluice_ledger'::regrole)"
        " AND has_function_privilege('public', oid, 'EXECUTE')"
    )
    assert open_to_all == []
    assert rows("SELECT has_schema_privilege('sluice_ledger', 'public', 'CREATE')") == [(False,)]


def test_a_signature_that_was_not_dropped_is_an_error_and_nothing_is_replaced() -> None:
    rows("CREATE FUNCTION ledger_open(wanted text) RETURNS text LANGUAGE sql AS 'SELECT 1::text'")
    rows("DROP FUNCTION ledger_hours_add")
    before = rows(FUNCTIONS)
    with pytest.raises(ProgrammingError, match="ledger_open.* is not unique"):
        _migrate()
    assert rows(FUNCTIONS) == before


async def test_a_second_migrate_waits_for_the_first() -> None:
    migrate = orm(_migrate)
    with psycopg.connect(superuser_dsn(), autocommit=True) as first:
        first.execute(f"SELECT pg_advisory_lock({MIGRATING})")

        async def waits() -> None:
            await until(
                lambda: (
                    rows("SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
                    == [(1,)]
                )
            )
            first.execute(f"SELECT pg_advisory_unlock({MIGRATING})")

        await asyncio.gather(migrate(), waits())
