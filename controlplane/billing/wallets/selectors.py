"""What there is to see of a wallet: its balance, how long it lasts, its history."""

import uuid
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.conf import settings
from django.db.models import Q

from controlplane.billing.access import may_see_money
from controlplane.billing.budgets.models import UNLIMITED_NANO, Budget
from controlplane.billing.ledger import accounts
from controlplane.billing.ledger.hours import hours
from controlplane.billing.ledger.models import JournalEntry
from controlplane.core.answers import FIRST_PAGE, Page, PageAsk, page_read
from controlplane.core.audit.entries import Actor
from controlplane.core.permissions import organization_scope
from controlplane.kernel.money import NANO_PER_USD

SPEED_DAYS = 7


@dataclass(frozen=True)
class Wallet:
    """A prepaid balance in nano-USD. `put_in` and `charged` only ever grow, but for corrections."""

    put_in: int
    charged: int
    held: int
    spent_lately: int

    @property
    def balance(self) -> int:
        return self.put_in - self.charged

    @property
    def available(self) -> int:
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


def has_wallet(organization_id: uuid.UUID) -> bool:
    return _row(organization_id) is not None


def wallet_get(*, actor: Actor, organization_id: uuid.UUID) -> Wallet | None:
    """An organization's wallet; None for one that pays by invoice."""
    may_see_money(actor, organization_id)
    hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
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


def _row(organization_id: uuid.UUID) -> Budget | None:
    rows = Budget.objects.filter(id=accounts.wallet_id(organization_id), lim__lt=UNLIMITED_NANO)
    return rows.first()
