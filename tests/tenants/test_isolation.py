"""Tenants are kept apart by the database too: every table that has an organization, by catalog."""

import uuid

import psycopg
import pytest
from django.conf import settings
from django.db import connection
from psycopg import sql

from controlplane.core.database_roles import password_of
from controlplane.core.permissions import Role, organization_scope, person_scope
from controlplane.tenants.keys import apikey_create
from controlplane.tenants.models import Membership
from controlplane.tenants.people.services import invitation_create
from tests.browser.history import write_history
from tests.support.people import Cast, make_cast

# Each table or partitioned table with such a column that the app's role may read, and how it is
# guarded. Partitions are left out: the app's role has no right on them, which is tested below.
TABLES = """
    SELECT c.relname, a.attname, c.relrowsecurity AND c.relforcerowsecurity,
           array(SELECT coalesce(p.qual, '') FROM pg_policies p
                 WHERE p.tablename = c.relname AND 'sluice_app' = ANY (p.roles)
                   AND p.cmd IN ('ALL', 'SELECT'))
    FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND NOT a.attisdropped
    WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p')
      AND NOT c.relispartition AND a.attname = ANY (%s)
      AND has_any_column_privilege('sluice_app', c.oid, 'SELECT')
    ORDER BY 1
"""
PARTITIONS = """
    SELECT c.relname FROM pg_class c
    WHERE c.relnamespace = 'public'::regnamespace AND c.relispartition
      AND has_any_column_privilege('sluice_app', c.oid, 'SELECT, INSERT, UPDATE')
"""
# Rows of these are in every cast with a history: what is not seen of them is there.
FILLED = {"api_keys", "audit_entries", "invitations", "memberships", "projects", "transfers"}

# What a condition of reading may ask for: the scope, or one's own rows before there is a scope; for
# rows of projects, which projects are seen.
NARROW = ("app.orgs", "app.person", "app.admin_key", "FROM projects")
ORGANIZATION, PROJECT = ("organization", "organization_id"), ("project", "project_id")


@pytest.fixture
def cast(database: str) -> Cast:
    """With a key, an invitation and requests in Acme, and a key in Other."""
    made = make_cast()
    key = apikey_create(actor=made.alice, project=made.project, label="k").key
    apikey_create(actor=made.charlie, project=made.other_project, label="k")
    invitation_create(
        actor=made.alice, organization=made.acme, email="dora@example.org", role=Role.VIEWER
    )
    write_history(made, key, "tiny")
    return made


def tenant_tables(
    columns: tuple[str, ...] = ORGANIZATION,
) -> list[tuple[str, str, bool, list[str]]]:
    """Name, the column that says whose, whether policies are forced, conditions of reading."""
    with connection.cursor() as cursor:
        cursor.execute(TABLES, [list(columns)])
        return list(cursor.fetchall())


def test_every_table_of_a_tenant_has_forced_policies_by_organization(database: str) -> None:
    found = tenant_tables(ORGANIZATION + PROJECT)
    assert {name for name, *_ in found} >= {*FILLED, "price_versions"}
    bare = [name for name, _, forced, conditions in found if not forced or not conditions]
    assert bare == []
    open_wide = [
        (name, condition)
        for name, _, _, conditions in found
        for condition in conditions
        if not any(setting in condition for setting in NARROW)
    ]
    assert open_wide == []


def test_partitions_cannot_be_read_past_their_parents_policy(cast: Cast) -> None:
    with connection.cursor() as cursor:
        cursor.execute(PARTITIONS)
        assert cursor.fetchall() == []


def test_a_query_in_another_scope_sees_nothing_of_any_table(cast: Cast) -> None:
    seen = set()
    for name, column, *_ in tenant_tables():
        count = sql.SQL("SELECT count(*) FROM {} WHERE {} = %s").format(
            sql.Identifier(name), sql.Identifier(column)
        )

        def rows(scope: list[uuid.UUID], query: sql.Composed = count) -> int:
            with organization_scope(scope), connection.cursor() as cursor:
                cursor.execute(query, [cast.acme.id])
                return int(cursor.fetchone()[0])

        assert rows([cast.other.id]) == 0, name
        assert rows([]) == 0, name
        if rows([cast.acme.id]):
            seen.add(name)
    assert seen >= FILLED


def test_a_row_cannot_be_put_into_another_organization(cast: Cast) -> None:
    with (
        pytest.raises(Exception, match="row-level security"),
        organization_scope([cast.other.id]),
    ):
        Membership.objects.create(organization=cast.acme, user=cast.charlie, role=Role.OWNER.value)


def test_a_person_sees_their_own_memberships_and_may_not_change_them(cast: Cast) -> None:
    with person_scope(cast.bob.id):
        assert [each.user_id for each in Membership.objects.all()] == [cast.bob.id]
        assert Membership.objects.update(role=Role.OWNER.value) == 0
        assert Membership.objects.all().delete()[0] == 0
    assert not Membership.objects.exists()


def test_the_apps_role_can_neither_bypass_policies_nor_become_who_can(database: str) -> None:
    own = settings.DATABASES["default"]
    with psycopg.connect(
        host=own["HOST"], port=own["PORT"] or None, dbname=own["NAME"], user=own["USER"],
        password=password_of(own),
    ) as direct:  # fmt: skip
        row = direct.execute(
            "SELECT rolsuper, rolbypassrls,"
            " (SELECT count(*) FROM pg_auth_members WHERE member = r.oid)"
            " FROM pg_roles r WHERE rolname = current_user"
        ).fetchone()
    assert row == (False, False, 0)
