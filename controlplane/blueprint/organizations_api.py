"""Organizations under /api/organizations, for staff."""

from __future__ import annotations

from typing import TypedDict

import msgspec
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.blueprint.organizations import FIRST_BUDGET_NANO, organization_open
from controlplane.blueprint.selectors_organizations import OrganizationRow, organization_rows
from controlplane.core.api import ApiView
from controlplane.core.api_schema import operation
from controlplane.core.permissions import Action
from controlplane.tenants.access import require
from controlplane.tenants.accounts import SETUP_PATH

CREATED = 201


class OrganizationBody(msgspec.Struct, forbid_unknown_fields=True):
    """A new organization: its name, its owner's address, and what it may spend in all."""

    name: str
    owner: str
    budget_nano: int = FIRST_BUDGET_NANO


class OrganizationJson(TypedDict):
    """An organization, in nano-USD; `balance_nano` is null where it pays by invoice."""

    id: str
    object: str
    name: str
    owners: list[str]
    members_count: int
    balance_nano: int | None
    spent_nano: int
    budget_left_nano: int | None
    state: str
    created_at: str


class NewOrganizationJson(TypedDict):
    """A new organization; `setup_path` sets its owner's password, null where they have one."""

    id: str
    object: str
    name: str
    owner: str
    setup_path: str | None


class Organizations(ApiView):
    """`GET | POST organizations`: all of them, and a new one."""

    step_up_methods = frozenset({"POST"})

    @operation(list_of=OrganizationJson)
    def get(self, request: Request) -> Response:
        """Newest first, for staff."""
        found = organization_rows(actor=self.actor(), now=timezone.now(), ask=self.page_ask())
        return self.page(found, organization_json)

    @operation(body=OrganizationBody, answer=NewOrganizationJson, status=CREATED)
    def post(self, request: Request) -> Response:
        """With its owner, a first project and a budget; the setup link is in this one answer."""
        require(self.actor(), Action.ORGANIZATION_CREATE)
        wanted = self.body(OrganizationBody)
        made = organization_open(
            actor=self.actor(),
            name=wanted.name,
            owner=wanted.owner,
            budget_nano=wanted.budget_nano,
        )
        body: NewOrganizationJson = {
            "id": str(made.organization.id),
            "object": "organization",
            "name": made.organization.name,
            "owner": made.owner.email,
            "setup_path": made.token and f"{SETUP_PATH}{made.token}",
        }
        return Response(body, status=CREATED, headers={"Cache-Control": "no-store"})


def organization_json(row: OrganizationRow) -> OrganizationJson:
    """An organization for programs."""
    return {
        "id": str(row.organization.id),
        "object": "organization",
        "name": row.organization.name,
        "owners": [user.email for user in row.owners],
        "members_count": row.members_count,
        "balance_nano": row.balance_nano,
        "spent_nano": row.spent_nano,
        "budget_left_nano": row.budget_left_nano,
        "state": row.state.value,
        "created_at": row.organization.created_at.isoformat(),
    }
