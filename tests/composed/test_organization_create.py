"""`manage.py organization_create`: a tenant that can be used, or nothing of it."""

from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from controlplane.core.permissions import Role, organization_scope
from controlplane.kernel.money import NANO_PER_USD
from controlplane.tenants.access import role_of
from controlplane.tenants.models import Organization
from controlplane.tenants.selectors import organization_list, project_list
from controlplane.tenants.sign_in.accounts import user_find
from tests.support.people import make_cast

pytestmark = pytest.mark.usefixtures("database")


def organization_create(*arguments: str) -> str:
    out = StringIO()
    call_command("organization_create", *arguments, stdout=out)
    return out.getvalue()


def limit_nano(organization: Organization) -> int:
    with organization_scope([organization.id]), connection.cursor() as cursor:
        cursor.execute("SELECT lim FROM budgets WHERE id = %s", [organization.id])
        limit: int = cursor.fetchone()[0]
        return limit


@pytest.mark.parametrize(
    ("more", "limit"), [((), 100 * NANO_PER_USD), (("--budget-usd", "2.5"), 2_500_000_000)]
)
def test_owner_project_and_budget_are_made(more: tuple[str, ...], limit: int) -> None:
    told = organization_create("Initech", "--owner", "Olga@example.org", *more)
    owner = user_find(email="olga@example.org")
    assert owner is not None and not owner.is_staff
    assert "olga@example.org sets a password at /setup/" in told
    (made,) = organization_list(user=owner)
    assert role_of(owner, made.id) is Role.OWNER
    assert [(made.name, one.name) for one in project_list(user=owner)] == [("Initech", "default")]
    assert limit_nano(made) == limit


def test_a_known_owner_is_taken() -> None:
    cast = make_cast()
    organization_create("Initech", "--owner", "alice@example.org")
    assert [one.name for one in organization_list(user=cast.alice)] == ["Acme", "Initech"]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("", "--owner", "new@example.org"), "NAME"),
        (("Acme", "--owner", "new@example.org"), "NAME"),
        (("Initech", "--owner", "no address"), "--owner"),
        (("Initech", "--owner", "new@example.org", "--budget-usd", "much"), "--budget-usd"),
        (("Initech", "--owner", "new@example.org", "--budget-usd=-1"), "--budget-usd"),
        (("Initech", "--owner", "new@example.org", "--budget-usd", "nan"), "--budget-usd"),
    ],
)
def test_a_wrong_argument_is_named_and_nothing_is_made(
    arguments: tuple[str, ...], named: str
) -> None:
    make_cast()
    with pytest.raises(CommandError, match=named):
        organization_create(*arguments)
    assert user_find(email="new@example.org") is None
    assert sorted(Organization.objects.values_list("name", flat=True)) == ["Acme", "Other"]
