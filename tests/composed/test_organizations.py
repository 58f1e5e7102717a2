"""Organizations by API and page: listed for staff, and opened with an owner who can come in."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client

from controlplane.billing.approvals.models import GrantKind
from controlplane.billing.budgets.models import BudgetScope
from controlplane.billing.budgets.services import budget_set
from controlplane.billing.ledger.accounts import wallet_id
from controlplane.billing.wallets.services import Gift, wallet_grant
from controlplane.core.audit.entries import OPERATOR
from controlplane.core.models import uuid7
from controlplane.core.permissions import Role
from controlplane.tenants.access import role_of
from controlplane.tenants.people.services import user_deactivate
from controlplane.tenants.selectors import organization_list, project_list
from controlplane.tenants.sign_in.accounts import user_find
from tests.support.money import rows
from tests.support.people import Cast, make_cast, signed_in

PATH, JSON = "/api/organizations", "application/json"
PASSWORD = "correct-horse-battery-9"


@pytest.fixture
def cast(database: str) -> Cast:
    return make_cast()


def create(cast: Cast, **body: Any) -> tuple[int, Any]:
    """Make one as staff."""
    answer = signed_in(cast.stella).post(PATH, body, content_type=JSON)
    return answer.status_code, answer.json()


def test_a_new_organization_has_an_owner_who_can_come_in(cast: Cast) -> None:
    status, made = create(cast, name="Initech", owner="Olga@example.org", budget_nano=5)
    assert (status, made["owner"]) == (201, "olga@example.org")
    browser = Client()
    browser.post(made["setup_path"], {"password": PASSWORD, "again": PASSWORD})
    assert "Initech" in browser.get("/").content.decode()
    owner = user_find(email="olga@example.org")
    assert owner is not None
    (organization,) = organization_list(user=owner)
    assert role_of(owner, organization.id) is Role.OWNER
    assert [one.name for one in project_list(user=owner)] == ["default"]
    done = rows("SELECT actor_label, action FROM audit_entries ORDER BY id DESC LIMIT 5")
    by_stella = [action for label, action in done if label == cast.stella.email]
    assert {"organization.create", "project.create", "user.create"} <= set(by_stella)


def test_all_are_listed_with_people_money_and_state(cast: Cast) -> None:
    create(cast, name="Initech", owner=cast.bob.email, budget_nano=7)
    budget_set(cast.acme.id, cast.acme.id, scope=BudgetScope.ORGANIZATION, limit_nano=0)
    wallet_grant(
        actor=cast.stella,
        organization_id=cast.other.id,
        gift=Gift(kind=GrantKind.TOPUP, amount_nano=9, reason="bank transfer 17"),
        form=uuid7(),
        becomes_prepaid=True,
    )
    listed = signed_in(cast.stella).get(PATH).json()["data"]
    found = {
        one["name"]: (one["owners"], one["balance_nano"], one["budget_left_nano"], one["state"])
        for one in listed
    }
    assert found == {
        "Initech": ([cast.bob.email], None, 7, "active"),
        "Acme": ([cast.alice.email], None, 0, "budget_spent"),
        "Other": ([cast.charlie.email], 9, None, "active"),
    }
    rows("UPDATE budgets SET posted = lim WHERE id = %s", wallet_id(cast.other.id))
    page = signed_in(cast.stella).get(PATH, {"limit": 2}).json()
    assert [one["name"] for one in page["data"]] == ["Initech", "Other"] and page["has_more"]
    assert page["data"][1]["state"] == "wallet_empty"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"name": "Acme", "owner": "new@example.org"}, "name"),
        ({"name": " ", "owner": "new@example.org"}, "name"),
        ({"name": "Initech", "owner": "no address"}, "owner"),
        ({"name": "Initech", "owner": "bob@example.org"}, "owner"),
        ({"name": "Initech", "owner": "new@example.org", "budget_nano": -1}, "budget_nano"),
    ],
)
def test_wrong_values_are_named_and_nothing_is_made(
    cast: Cast, body: dict[str, Any], field: str
) -> None:
    user_deactivate(actor=OPERATOR, user=cast.bob)
    status, told = create(cast, **body)
    assert (status, list(told["error"]["fields"])) == (400, [field])
    assert user_find(email="new@example.org") is None
    assert len(signed_in(cast.stella).get(PATH).json()["data"]) == 2


def test_the_page_shows_the_owners_link_once(cast: Cast) -> None:
    stella = signed_in(cast.stella)
    form = {"name": "Initech", "owner": "olga@example.org", "budget": "25.00"}
    shown = stella.post("/organizations/new", form).content.decode()
    found = re.search(r"/setup/[\w-]+", shown)
    assert found is not None and "Initech was created" in shown
    page = stella.get("/organizations").content.decode()
    assert found[0] not in page and "olga@example.org" in page and "$25.00" in page
    owner = user_find(email="olga@example.org")
    assert owner is not None
    organization = organization_list(user=owner)[0].id.hex
    again = stella.post(f"/organizations/{organization}/links/{owner.id.hex}").content.decode()
    assert re.search(r"/setup/[\w-]+", again) and Client().get(found[0]).status_code == 410
    taken = stella.post("/organizations/new", form, follow=True).content.decode()
    assert "An organization with this name already exists." in taken
