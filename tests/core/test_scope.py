"""The scope of rows: closed by default, nests, and ends with its transaction."""

import pytest
from django.db import connection

from controlplane.core.permissions import organization_scope
from controlplane.tenants.models import Project
from tests.support.people import make_cast

pytestmark = pytest.mark.usefixtures("database")


def test_without_a_scope_nothing_is_seen() -> None:
    make_cast()
    assert not Project.objects.exists()
    with organization_scope([]):
        assert not Project.objects.exists()


def test_scopes_nest_and_end() -> None:
    cast = make_cast()
    with organization_scope([cast.acme.id]):
        assert [p.name for p in Project.objects.all()] == ["web"]
        with organization_scope([cast.other.id]):
            assert [p.name for p in Project.objects.all()] == ["secret"]
        assert [p.name for p in Project.objects.all()] == ["web"]
        with pytest.raises(ZeroDivisionError), organization_scope([cast.other.id]):
            raise ZeroDivisionError
        assert [p.name for p in Project.objects.all()] == ["web"]
    assert not Project.objects.exists()


def test_rows_of_others_can_be_neither_changed_nor_made() -> None:
    cast = make_cast()
    with organization_scope([cast.other.id]):
        assert not Project.objects.filter(id=cast.project.id).update(name="stolen")
    with (
        pytest.raises(Exception, match="row-level security"),
        organization_scope([cast.other.id]),
    ):
        Project.objects.create(organization=cast.acme, name="planted")


def test_the_app_role_is_bound_by_policies() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT rolsuper, rolbypassrls FROM pg_roles WHERE rolname = current_user")
        assert cursor.fetchone() == (False, False)
