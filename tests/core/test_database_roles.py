"""`bootstrap_db`: makes what is missing, says exactly what it may not do, grants no partition."""

from io import StringIO

import psycopg
import pytest
from django.core.management import call_command
from django.db import connections
from psycopg import sql

from controlplane.core.database_roles import MissingRights, Role, Wanted, bootstrap
from tests.support.servers import Servers

PASSWORD = "a-password-of-the-tests-only-0123456789"
SERVED = ("sluice_app", "sluice_gateway", "sluice_ledger")


def test_a_second_run_changes_nothing(database: str) -> None:
    out = StringIO()
    call_command("bootstrap_db", stdout=out)
    assert out.getvalue() == ""


def test_served_roles_are_below_every_policy(database: str) -> None:
    with connections["owner"].cursor() as cursor:
        cursor.execute(
            "SELECT rolname FROM pg_roles WHERE rolname = ANY(%s)"
            " AND NOT rolsuper AND NOT rolbypassrls AND NOT rolcreaterole",
            [list(SERVED)],
        )
        assert {name for (name,) in cursor.fetchall()} == set(SERVED)


def test_a_changed_password_is_set_again(servers: Servers, database: str) -> None:
    dsn = servers.postgres.superuser_dsn
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("ALTER ROLE sluice_app PASSWORD 'something else'")
    out = StringIO()
    call_command("bootstrap_db", stdout=out)
    assert out.getvalue() == "made password of sluice_app\n"


def test_missing_rights_print_statements_that_an_administrator_can_run(
    servers: Servers, database: str
) -> None:
    wanted = Wanted(
        database=database,
        owner=Role("poor_owner", PASSWORD, {}),
        app=Role("poor_app", PASSWORD, {}),
        gateway=Role("poor_gateway", PASSWORD, {}),
        ledger=Role("poor_ledger", None, {}),
    )
    admin = servers.postgres.superuser_dsn
    with psycopg.connect(admin, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE poor_owner LOGIN PASSWORD '{PASSWORD}'")
        try:
            poor = psycopg.conninfo.make_conninfo(
                admin, user="poor_owner", password=PASSWORD, dbname=database
            )
            with pytest.raises(MissingRights) as caught:
                bootstrap(poor, wanted)
            assert PASSWORD not in "".join(caught.value.statements)
            for statement in caught.value.statements:
                connection.execute(statement.encode())
            app = psycopg.conninfo.make_conninfo(admin, user="poor_app", password=PASSWORD)
            psycopg.connect(app).close()
        finally:
            for role in ("poor_owner", "poor_app", "poor_gateway", "poor_ledger"):
                connection.execute(sql.SQL("DROP ROLE IF EXISTS {}").format(sql.Identifier(role)))


def test_migrate_grants_new_tables_but_no_partition_and_no_decided_table(database: str) -> None:
    with connections["owner"].cursor() as cursor:
        cursor.execute("CREATE TABLE plain (id bigint)")
        cursor.execute("CREATE TABLE parent (id bigint) PARTITION BY RANGE (id)")
        cursor.execute("CREATE TABLE part PARTITION OF parent FOR VALUES FROM (0) TO (9)")
        cursor.execute("CREATE TABLE decided (id bigint)")
        cursor.execute("GRANT SELECT ON decided TO sluice_app")
    call_command("migrate", verbosity=0)
    with connections["owner"].cursor() as cursor:
        cursor.execute(
            "SELECT c.relname, has_table_privilege('sluice_app', c.oid, 'SELECT'),"
            " has_table_privilege('sluice_app', c.oid, 'INSERT') FROM pg_class c"
            " WHERE c.relname IN ('plain', 'parent', 'part', 'decided') ORDER BY 1"
        )
        assert cursor.fetchall() == [
            ("decided", True, False),
            ("parent", True, True),
            ("part", False, False),
            ("plain", True, True),
        ]
