"""`manage.py bootstrap_db`: roles, database and grants, before the first migration. Idempotent."""

from typing import Any

import psycopg
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import connections

from controlplane.core import database_roles
from controlplane.embedded.poolers import POOLED, POOLED_FIX, pooled_by_transaction
from controlplane.embedded.postgres import SUPERUSER


class Command(BaseCommand):
    """Prepares PostgreSQL for `migrate`, or prints the SQL that an administrator must run."""

    help = "Create the database roles, the database and its grants."
    requires_system_checks: list[str] = []

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            made = database_roles.bootstrap(_maintenance_dsn(), _wanted())
            pooled = [] if settings.EMBEDDED_DATABASE else pooled_by_transaction()
        except database_roles.MissingRights as error:
            statements = "\n".join(error.statements)
            raise CommandError(
                f"{error} Run this as an administrator of the server, then start again:\n"
                f"{statements}"
            ) from error
        except psycopg.OperationalError as error:
            raise CommandError(
                f"PostgreSQL refuses the connection: {error}\n{_first_steps()}"
            ) from error
        if pooled:
            raise CommandError(f"{' and '.join(pooled)}: {POOLED}. {POOLED_FIX}")
        for name in made if options["verbosity"] else []:
            self.stdout.write(f"made {name}")


def _first_steps() -> str:
    """What an administrator of a foreign server does once, so that the owner can sign in."""
    if settings.EMBEDDED_DATABASE:
        return "Is `manage.py sluice run` running?"
    owner = settings.DATABASES["owner"]
    return (
        "If the server is running, ask its administrator to create the owner and the database "
        "first:\n"
        f"CREATE ROLE {owner['USER']} LOGIN PASSWORD 'the one in DATABASE_OWNER_URL';\n"
        f"CREATE DATABASE {owner['NAME']} OWNER {owner['USER']};"
    )


def _wanted() -> database_roles.WantedRoles:
    databases = settings.DATABASES
    return database_roles.WantedRoles(
        database=databases["default"]["NAME"],
        owner=_role("owner", {}),
        app=_role("default", database_roles.app_settings(), database_roles.APP_CONNECTIONS_SHARE),
        gateway=_role("gateway", database_roles.gateway_settings()),
        ledger=database_roles.DatabaseRole(database_roles.LEDGER_ROLE, None, {}),
    )


def _role(
    alias: str, role_settings: dict[str, str], share: float | None = None
) -> database_roles.DatabaseRole:
    connection = settings.DATABASES[alias]
    return database_roles.DatabaseRole(
        connection["USER"], database_roles.password_of(connection), role_settings, share
    )


def _maintenance_dsn() -> str:
    """The private server's superuser, or the owner on a server of yours."""
    owner = connections["owner"].settings_dict
    if settings.EMBEDDED_DATABASE:
        login = {"user": SUPERUSER, "password": settings.SUPERUSER_PASSWORD, "dbname": "postgres"}
    else:
        password = database_roles.password_of(owner)
        login = {"user": owner["USER"], "password": password, "dbname": owner["NAME"]}
    return database_roles.conninfo_of(owner, **login)
