"""Organizations under /api/organizations, for staff."""

from datetime import datetime
from typing import TypedDict

import msgspec
from django.utils import timezone
from rest_framework.response import Response

from controlplane.composed.organizations.selectors import OrganizationRow, organization_rows
from controlplane.composed.organizations.services import FIRST_BUDGET_NANO, organization_open
from controlplane.core.answers import answer_of
from controlplane.core.api.schema import CREATED, operation
from controlplane.core.api.views import ApiView
from controlplane.core.permissions import Action
from controlplane.kernel.ids import OrganizationId, public_id
from controlplane.tenants.access import require
from controlplane.tenants.sign_in.accounts import SETUP_PATH


class OrganizationBody(msgspec.Struct, forbid_unknown_fields=True):
    """A new organization: its name, its owner's address, and what it may spend in all."""

    name: str
    owner: str
    budget_nano: int = FIRST_BUDGET_NANO


class OrganizationJson(TypedDict):
    """An organization, in nano-USD; `balance_nano` is null where it pays by invoice."""

    id: OrganizationId
    object: str
    name: str
    owners: list[str]
    members_count: int
    balance_nano: int | None
    spent_nano: int
    budget_left_nano: int | None
    state: str
    created_at: datetime


class NewOrganizationJson(TypedDict):
    """A new organization; `setup_path` sets its owner's password, null where they have one."""

    id: OrganizationId
    object: str
    name: str
    owner: str
    setup_path: str | None


class Organizations(ApiView, at="api/organizations"):
    @operation(list_of=OrganizationJson)
    def get(self) -> Response:
        """List organizations, newest first. Staff only."""
        found = organization_rows(actor=self.actor(), now=timezone.now(), ask=self.page_ask("org"))
        return self.page(found, organization_json)

    @operation(body=OrganizationBody, answer={CREATED: NewOrganizationJson}, step_up=True)
    def post(self) -> Response:
        """Create an organization with owner, project and budget; returns the setup link once."""
        require(self.actor(), Action.ORGANIZATION_CREATE)
        wanted = self.body(OrganizationBody)
        made = organization_open(
            actor=self.actor(), name=wanted.name, owner=wanted.owner, budget_nano=wanted.budget_nano
        )
        body: NewOrganizationJson = {
            "id": public_id("org", made.organization.id),
            "object": "organization",
            "name": made.organization.name,
            "owner": made.owner.email,
            "setup_path": made.token and f"{SETUP_PATH}{made.token}",
        }
        return Response(body, status=CREATED, headers={"Cache-Control": "no-store"})


def organization_json(row: OrganizationRow) -> OrganizationJson:
    organization = row.organization
    return answer_of(
        OrganizationJson,
        row,
        id=organization.id,
        object="organization",
        name=organization.name,
        owners=[user.email for user in row.owners],
        created_at=organization.created_at,
    )
