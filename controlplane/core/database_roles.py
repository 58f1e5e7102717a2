"""What the database must hold before migrations: roles, the database itself, and a few grants.

Looks first and changes only what is missing, so it may run at every start. No tables are made here.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, LiteralString

import psycopg
from psycopg import sql

OWNER_ROLE = "sluice_owner"
APP_ROLE = "sluice_app"
GATEWAY_ROLE = "sluice_gateway"
LEDGER_ROLE = "sluice_ledger"
# Made by an administrator, where the server is one's own.
BACKUP_ROLE = "sluice_backup"
# No transaction of ours on the primary may last longer: a long one slows every hold on a hot row.
STATEMENT_SECONDS_MAX = "5s"
CONNECT_SECONDS_MAX = 5
# Of the server's connections; the rest is left to the gateways, whatever pages and jobs do.
APP_CONNECTIONS_SHARE = 0.6
NO_LIMIT = -1

# What is missing, in words, and the statement that makes it.
Step = tuple[str, sql.Composed]


@dataclass(frozen=True)
class DatabaseRole:
    """One role; without a password it cannot log in."""

    name: str
    password: str | None
    settings: Mapping[str, str]
    # None: as many connections as the server has.
    connections_share: float | None = None


@dataclass(frozen=True)
class WantedRoles:
    """The whole target: who owns what, and who may connect."""

    database: str
    owner: DatabaseRole
    app: DatabaseRole
    gateway: DatabaseRole
    ledger: DatabaseRole

    @property
    def served(self) -> tuple[DatabaseRole, ...]:
        """The roles that migrations grant to; none of them owns a login's tables."""
        return (self.app, self.gateway, self.ledger)


def app_settings() -> dict[str, str]:
    """Session settings of the pages' and jobs' role."""
    return {
        "statement_timeout": STATEMENT_SECONDS_MAX,
        "idle_in_transaction_session_timeout": STATEMENT_SECONDS_MAX,
    }


def gateway_settings() -> dict[str, str]:
    """As the app's; generic plans, since array parameters would be planned at every call."""
    return {**app_settings(), "plan_cache_mode": "force_generic_plan"}


def password_of(database: Mapping[str, Any]) -> str:
    """Of a connection in the settings: the one given, or that in the file it is read from."""
    given: str = database["PASSWORD"]
    if given or "passfile" not in database["OPTIONS"]:
        return given
    return Path(database["OPTIONS"]["passfile"]).read_text().strip().rpartition(":")[2]


def conninfo_of(database: Mapping[str, Any], **changes: Any) -> str:
    """Of a connection in the settings, for psycopg and libpq; `changes` replace parts of it."""
    parts = {
        "host": database["HOST"],
        "port": database["PORT"] or None,
        "dbname": database["NAME"],
        "user": database["USER"],
        "password": database["PASSWORD"] or None,
        **database["OPTIONS"],
        **changes,
    }
    return psycopg.conninfo.make_conninfo("", **parts)


def password_change(dsn: str, password: str, publish: Callable[[], None]) -> None:
    """Give the role that signs in with `dsn` another password, and call `publish` just before that
    counts: nobody reads the new one for longer than a commit takes before it is valid.
    """
    with psycopg.connect(dsn) as connection:
        user = connection.info.user
        role = DatabaseRole(user, password, {})
        connection.execute(_text("ALTER ROLE {}", user) + _password_clause(connection, role))
        publish()


class MissingRights(Exception):
    """The connection may not do all that is needed; `statements` is what an administrator runs."""

    def __init__(self, user: str, statements: list[str]) -> None:
        super().__init__(f"The role {user} is not allowed to prepare the database.")
        self.statements = statements


def bootstrap(maintenance_dsn: str, wanted: WantedRoles) -> list[str]:
    """Make what is missing; returns the names of what was made."""
    with psycopg.connect(maintenance_dsn, autocommit=True) as connection:
        made = _apply(connection, list(_cluster_statements(connection, wanted)))
    dsn = psycopg.conninfo.make_conninfo(maintenance_dsn, dbname=wanted.database)
    with psycopg.connect(dsn, autocommit=True) as connection:
        made += _apply(connection, list(_schema_statements(connection, wanted)))
    return made


def _apply(connection: psycopg.Connection, statements: list[Step]) -> list[str]:
    for number, (_, statement) in enumerate(statements):
        try:
            connection.execute(statement)
        except psycopg.errors.InsufficientPrivilege as error:
            rest = [f"{text.as_string(connection)};" for _, text in statements[number:]]
            raise MissingRights(connection.info.user, rest) from error
    return [name for name, _ in statements]


def _cluster_statements(connection: psycopg.Connection, wanted: WantedRoles) -> Iterator[Step]:
    for role in (wanted.owner, *wanted.served):
        yield from _role_statements(connection, role, bounded=role is not wanted.owner)
    owner, ledger = wanted.owner.name, wanted.ledger.name
    known = _exists(connection, "SELECT 1 FROM pg_roles WHERE rolname = %s", ledger)
    # As a member, the owner's migrations may hand functions over to the ledger's role.
    if not known or not _exists(
        connection,
        "SELECT 1 FROM pg_auth_members m JOIN pg_roles r ON r.oid = m.roleid"
        " JOIN pg_roles o ON o.oid = m.member WHERE o.rolname = %s AND r.rolname = %s",
        owner,
        ledger,
    ):
        yield f"membership of {owner} in {ledger}", _text("GRANT {} TO {}", ledger, owner)
    if not _exists(connection, "SELECT 1 FROM pg_database WHERE datname = %s", wanted.database):
        statement = _text("CREATE DATABASE {} OWNER {}", wanted.database, owner)
        yield f"database {wanted.database}", statement


def _role_statements(
    connection: psycopg.Connection, role: DatabaseRole, *, bounded: bool
) -> Iterator[Step]:
    row = connection.execute(
        "SELECT rolsuper OR rolbypassrls, coalesce(rolconfig, '{}'), rolconnlimit FROM pg_roles"
        " WHERE rolname = %s",
        [role.name],
    ).fetchone()
    if row is None:
        kind = "NOLOGIN" if role.password is None else "LOGIN"
        create = sql.SQL("CREATE ROLE {} {} NOSUPERUSER NOBYPASSRLS").format(
            sql.Identifier(role.name), sql.SQL(kind)
        )
        yield f"role {role.name}", create + _password_clause(connection, role)
    elif row[0] and bounded:
        yield (
            f"role {role.name} without rights above policies",
            _text("ALTER ROLE {} NOSUPERUSER NOBYPASSRLS", role.name),
        )
    elif role.password is not None and not _logs_in(connection, role):
        change = _text("ALTER ROLE {}", role.name) + _password_clause(connection, role)
        yield f"password of {role.name}", change
    present = set(row[1]) if row else set()
    for key, value in role.settings.items():
        if f"{key}={value}" not in present:
            yield (
                f"{key} of {role.name}",
                sql.SQL("ALTER ROLE {} SET {} = {}").format(
                    sql.Identifier(role.name), sql.Identifier(key), sql.Literal(value)
                ),
            )
    # An administrator's own limit stays.
    if role.connections_share is not None and (row is None or row[2] == NO_LIMIT):
        yield _limit_statement(connection, role.name, role.connections_share)


def _limit_statement(connection: psycopg.Connection, name: str, share: float) -> Step:
    row = connection.execute("SELECT current_setting('max_connections')::int").fetchone()
    limit = int(share * row[0]) if row else NO_LIMIT
    statement = sql.SQL("ALTER ROLE {} CONNECTION LIMIT {}")
    return (
        f"connection limit of {name}",
        statement.format(sql.Identifier(name), sql.Literal(limit)),
    )


def _schema_statements(connection: psycopg.Connection, wanted: WantedRoles) -> Iterator[Step]:
    for role in wanted.served:
        if not _exists(
            connection, "SELECT 1 WHERE has_schema_privilege(%s, 'public', 'USAGE')", role.name
        ):
            yield f"schema for {role.name}", _text("GRANT USAGE ON SCHEMA public TO {}", role.name)
        if role.password is not None and not _exists(
            connection,
            "SELECT 1 WHERE has_database_privilege(%s, current_database(), 'CONNECT')",
            role.name,
        ):
            grant = _text("GRANT CONNECT ON DATABASE {} TO {}", wanted.database, role.name)
            yield f"connections of {role.name}", grant


def _password_clause(connection: psycopg.Connection, role: DatabaseRole) -> sql.Composed:
    if role.password is None:
        return sql.Composed([])
    # Sent as a SCRAM verifier: the password itself reaches neither logs nor a printed statement.
    verifier = connection.pgconn.encrypt_password(
        role.password.encode(), role.name.encode(), b"scram-sha-256"
    )
    return sql.SQL(" PASSWORD {}").format(sql.Literal(verifier.decode()))


def _logs_in(connection: psycopg.Connection, role: DatabaseRole) -> bool:
    dsn = psycopg.conninfo.make_conninfo(
        connection.info.dsn,
        user=role.name,
        password=role.password,
        connect_timeout=CONNECT_SECONDS_MAX,
    )
    try:
        psycopg.connect(dsn).close()
    except psycopg.OperationalError:
        return False
    return True


def _exists(connection: psycopg.Connection, query: LiteralString, *values: str) -> bool:
    return connection.execute(query, values).fetchone() is not None


def _text(template: LiteralString, *names: str) -> sql.Composed:
    return sql.SQL(template).format(*(sql.Identifier(name) for name in names))
