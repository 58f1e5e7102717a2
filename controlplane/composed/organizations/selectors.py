"""All organizations as staff see them: who owns them, how they pay, and whether they can go on."""

import uuid
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from controlplane.billing.budgets.models import UNLIMITED_NANO, Budget
from controlplane.billing.ledger.accounts import wallet_id
from controlplane.billing.ledger.hours import hours
from controlplane.billing.ledger.spend import hour_after
from controlplane.core.answers import FIRST_PAGE, Page, PageAsk, page_read
from controlplane.core.audit.entries import Actor
from controlplane.core.permissions import Action, Role, organization_scope
from controlplane.tenants.access import require
from controlplane.tenants.models import Membership, Organization, User

OWNERS_SHOWN_MAX = 5


class PaymentState(StrEnum):
    """Whether new requests of an organization are paid for."""

    ACTIVE = "active"
    WALLET_EMPTY = "wallet_empty"
    BUDGET_SPENT = "budget_spent"


@dataclass(frozen=True)
class OrganizationRow:
    """An organization with its people and money, in nano-USD.

    `balance_nano` is None where it pays by invoice; `spent_nano` is what was booked this month, as
    far as hours are sealed.
    """

    organization: Organization
    owners: list[User]
    members_count: int
    balance_nano: int | None
    spent_nano: int
    budget_left_nano: int | None
    state: PaymentState


def organization_rows(
    *, actor: Actor, now: datetime, ask: PageAsk = FIRST_PAGE
) -> Page[OrganizationRow]:
    """A page of all organizations, newest first."""
    require(actor, Action.ORGANIZATION_CREATE)
    found = page_read(Organization.objects.all(), ask)
    ids = [one.id for one in found.rows]
    month = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    spent = {
        each.organization: each.nano
        for each in hours(organizations=ids, start=month, end=hour_after(now), by=("organization",))
    }
    with organization_scope(ids):
        members = list(
            Membership.objects.filter(organization__in=ids).select_related("user").order_by("id")
        )
        wanted = [*ids, *map(wallet_id, ids)]
        budgets = {row.id: row for row in Budget.objects.filter(id__in=wanted)}
    people = {one: [each for each in members if each.organization_id == one] for one in ids}
    rows = [_row(one, people[one.id], budgets, spent.get(one.id, 0)) for one in found.rows]
    return Page(rows, found.has_more)


def _row(
    organization: Organization,
    members: list[Membership],
    budgets: dict[uuid.UUID, Budget],
    spent_nano: int,
) -> OrganizationRow:
    wallet = _limited(budgets.get(wallet_id(organization.id)))
    budget = _limited(budgets.get(organization.id))
    state = PaymentState.ACTIVE
    if wallet is not None and not wallet.room_nano:
        state = PaymentState.WALLET_EMPTY
    elif budget is not None and not budget.room_nano:
        state = PaymentState.BUDGET_SPENT
    return OrganizationRow(
        organization=organization,
        owners=[m.user for m in members if m.role == Role.OWNER][:OWNERS_SHOWN_MAX],
        members_count=len(members),
        balance_nano=None if wallet is None else wallet.lim - wallet.posted,
        spent_nano=spent_nano,
        budget_left_nano=None if budget is None else budget.room_nano,
        state=state,
    )


def _limited(budget: Budget | None) -> Budget | None:
    return budget if budget is not None and budget.lim < UNLIMITED_NANO else None
