"""`bootstrap_db`: makes what is missing, says exactly what it may not do, grants no partition."""

from io import StringIO

import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.db import connections
from psycopg import sql

from controlplane.core.database_roles import (
    APP_CONNECTIONS_SHARE,
    DatabaseRole,
    MissingRights,
    WantedRoles,
    bootstrap,
)
from controlplane.core.management.commands import migrate
from tests.support.money import superuser_dsn
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


def test_pages_and_jobs_leave_connections_to_the_gateways(servers: Servers, database: str) -> None:
    asked = (
        "SELECT rolconnlimit::float / current_setting('max_connections')::int FROM pg_roles"
        " WHERE rolname = 'sluice_app'"
    )
    with psycopg.connect(servers.postgres.superuser_dsn, autocommit=True) as connection:
        assert connection.execute(asked).fetchone() == (APP_CONNECTIONS_SHARE,)
        connection.execute("ALTER ROLE sluice_app CONNECTION LIMIT 50")
        try:
            call_command("bootstrap_db", stdout=StringIO())
            assert connection.execute(asked).fetchone() != (APP_CONNECTIONS_SHARE,)
        finally:
            connection.execute("ALTER ROLE sluice_app CONNECTION LIMIT -1")
            out = StringIO()
            call_command("bootstrap_db", stdout=out)
    assert out.getvalue() == "made connection limit of sluice_app\n"


def test_missing_rights_print_statements_that_an_administrator_can_run(
    servers: Servers, database: str
) -> None:
    wanted = WantedRoles(
        database=database,
        owner=DatabaseRole("poor_owner", PASSWORD, {}),
        app=DatabaseRole("poor_app", PASSWORD, {}),
        gateway=DatabaseRole("poor_gateway", PASSWORD, {}),
        ledger=DatabaseRole("poor_ledger", None, {}),
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


def test_migrate_fails_on_a_table_that_nobody_decided_about(database: str) -> None:
    with connections["owner"].cursor() as cursor:
        cursor.execute("CREATE TABLE parent (id bigint) PARTITION BY RANGE (id)")
        cursor.execute("GRANT INSERT ON parent TO sluice_app")
        cursor.execute("CREATE TABLE part PARTITION OF parent FOR VALUES FROM (0) TO (9)")
        cursor.execute("CREATE TABLE decided (id bigserial)")
        cursor.execute("GRANT SELECT ON decided, decided_id_seq TO sluice_app")
    call_command("migrate", verbosity=0)
    with connections["owner"].cursor() as cursor:
        cursor.execute("CREATE TABLE plain (id bigint)")
    with pytest.raises(CommandError, match="undecided for plain"):
        call_command("migrate", verbosity=0)
    with connections["owner"].cursor() as cursor:
        cursor.execute(
            "SELECT c.relname, has_table_privilege('sluice_app', c.oid, 'SELECT'),"
            " has_table_privilege('sluice_app', c.oid, 'INSERT') FROM pg_class c"
            " WHERE c.relname IN ('plain', 'parent', 'part', 'decided') ORDER BY 1"
        )
        assert cursor.fetchall() == [
            ("decided", True, False),
            ("parent", False, True),
            ("part", False, False),
            ("plain", False, False),
        ]


def test_migrate_waits_for_a_lock_in_bounds_and_tries_again(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrate, "BOUNDED", ("SET lock_timeout = '50ms'", migrate.BOUNDED[1]))
    monkeypatch.setattr(migrate, "LOCK_RETRY_S", 0.0)
    monkeypatch.setattr(migrate, "LOCK_TRIES_MAX", 3)
    tries: list[int] = []
    with psycopg.connect(superuser_dsn()) as reader:

        def change(*_: object, **__: object) -> None:
            """A migration that alters a table which somebody has been reading for long."""
            tries.append(len(tries))
            if len(tries) == 5:
                reader.rollback()
            with connections["owner"].cursor() as cursor:
                cursor.execute("ALTER TABLE models ADD COLUMN more integer")

        monkeypatch.setattr("django.core.management.commands.migrate.Command.handle", change)
        reader.execute("SELECT 1 FROM models")
        with pytest.raises(CommandError, match="stayed locked"):
            call_command("migrate", verbosity=0, stdout=StringIO())
        assert len(tries) == migrate.LOCK_TRIES_MAX
        call_command("migrate", verbosity=0, stdout=StringIO())
    assert len(tries) == 5
    with connections["owner"].cursor() as cursor:
        cursor.execute("SHOW lock_timeout")
        assert cursor.fetchone() == ("0",)
