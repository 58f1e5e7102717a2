"""What there is to see of a wallet: its balance, how long it lasts, its history, what waits."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.conf import settings
from django.db.models import Q

from controlplane.billing import accounts
from controlplane.billing.hours import hours
from controlplane.billing.invoice_models import GrantState, WalletGrant
from controlplane.billing.models import UNLIMITED_NANO, Budget, JournalEntry
from controlplane.core.audit import Actor
from controlplane.core.paging import FIRST_PAGE, Page, PageAsk, page_read
from controlplane.core.permissions import Action
from controlplane.core.scope import organization_scope
from controlplane.kernel.money import NANO_PER_USD
from controlplane.tenants.access import allows, require
from controlplane.tenants.selectors_staff import organization_names

SPEED_DAYS = 7
PENDING_MAX = 200


@dataclass(frozen=True)
class Wallet:
    """A prepaid balance in nano-USD. `put_in` and `charged` only ever grow, but for corrections."""

    put_in: int
    charged: int
    held: int
    spent_lately: int

    @property
    def balance(self) -> int:
        """What is left, held money included; below zero after charges beyond their holds."""
        return self.put_in - self.charged

    @property
    def available(self) -> int:
        """What new requests may still take."""
        return max(0, self.balance - self.held)

    @property
    def low(self) -> bool:
        """Whether it has sunk below the figure of the settings."""
        return self.balance < settings.LOW_BALANCE_USD * NANO_PER_USD

    @property
    def days_left(self) -> int | None:
        """How many days it lasts at the speed of the last week; None where nothing was spent."""
        if self.spent_lately <= 0:
            return None
        return max(0, self.balance) * SPEED_DAYS // self.spent_lately


def may_see_money(actor: Actor, organization_id: uuid.UUID) -> None:
    """Return for its members who see the ledger, and for those who grant credit anywhere."""
    if not allows(actor, Action.CREDIT_GRANT):
        require(actor, Action.LEDGER_VIEW, organization_id)


def has_wallet(organization_id: uuid.UUID) -> bool:
    """Whether it is prepaid; inside its scope."""
    return _row(organization_id) is not None


def wallet_get(
    *, actor: Actor, organization_id: uuid.UUID, now: datetime | None = None
) -> Wallet | None:
    """An organization's wallet; None for one that pays by invoice."""
    may_see_money(actor, organization_id)
    hour = (now or datetime.now(UTC)).replace(minute=0, second=0, microsecond=0)
    end = hour + timedelta(hours=1)
    with organization_scope([organization_id]):
        row = _row(organization_id)
        if row is None:
            return None
        begin = end - timedelta(days=SPEED_DAYS)
        sums = hours(organizations=[organization_id], start=begin, end=end, by=("organization",))
        spent = sum(each.nano for each in sums)
    return Wallet(row.lim, row.posted, row.held, spent)


def wallet_entries(
    *, actor: Actor, organization_id: uuid.UUID, ask: PageAsk = FIRST_PAGE
) -> Page[JournalEntry]:
    """What was put into the wallet or taken out of it other than by requests, newest first."""
    may_see_money(actor, organization_id)
    account = accounts.wallet(organization_id)
    with organization_scope([organization_id]):
        rows = JournalEntry.objects.filter(organization=organization_id)
        return page_read(rows.filter(Q(debit=account) | Q(credit=account)), ask)


def grant_list(
    *, actor: Actor, organization_id: uuid.UUID, ask: PageAsk = FIRST_PAGE
) -> Page[WalletGrant]:
    """Grants of an organization, whatever became of them, newest first."""
    may_see_money(actor, organization_id)
    with organization_scope([organization_id]):
        return page_read(WalletGrant.objects.filter(organization=organization_id), ask)


def grants_pending(*, actor: Actor) -> list[WalletGrant]:
    """Those of every organization that wait for a second person, oldest first."""
    require(actor, Action.CREDIT_GRANT)
    with organization_scope(organization_names(actor=actor)):
        rows = WalletGrant.objects.filter(state=GrantState.PENDING)
        return list(rows.order_by("id")[:PENDING_MAX])


def grant_get(*, actor: Actor, organization_id: uuid.UUID, grant_id: uuid.UUID) -> WalletGrant:
    """One grant; raises DoesNotExist."""
    may_see_money(actor, organization_id)
    with organization_scope([organization_id]):
        return WalletGrant.objects.get(id=grant_id, organization=organization_id)


def _row(organization_id: uuid.UUID) -> Budget | None:
    rows = Budget.objects.filter(id=accounts.wallet_id(organization_id), lim__lt=UNLIMITED_NANO)
    return rows.first()
