"""Where an invoice stands: derived from its date, payments and credit notes, kept nowhere.

Nothing follows from it by itself: whom to stop serving is decided by people, by lowering a budget.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from enum import IntEnum
from functools import cached_property

from django.conf import settings

from controlplane.billing.documents.models import DocumentKind, Invoice


class Stage(IntEnum):
    """From nothing to do to the third reminder; a higher one is worse."""

    SETTLED = 0
    CURRENT = 1
    DUE = 2
    OVERDUE_1 = 3
    OVERDUE_2 = 4
    OVERDUE_3 = 5

    @property
    def words(self) -> str:
        return self.name.lower().replace("_", " ")


@dataclass(frozen=True)
class Standing:
    """An invoice with what was paid and given back of it, seen on a day."""

    invoice: Invoice
    paid_cents: int
    credited_cents: int
    today: date

    @cached_property
    def open_cents(self) -> int:
        """What is still owed; below zero where more came in than was owed."""
        if self.invoice.kind != DocumentKind.INVOICE:
            return 0
        return self.invoice.asked_cents - self.paid_cents - self.credited_cents

    @property
    def left_over_cents(self) -> int:
        """What came in or was given back beyond what was owed: kept for later invoices."""
        return max(0, -self.open_cents)

    @cached_property
    def stage(self) -> Stage:
        """Due from the due date on, overdue the configured numbers of days after it."""
        if self.open_cents <= 0:
            return Stage.SETTLED
        late = (self.today - self.invoice.due_on).days
        if late < 0:
            return Stage.CURRENT
        passed = sum(late >= days for days in settings.DUNNING_DAYS)
        return Stage(Stage.DUE + passed)

    @property
    def words(self) -> str:
        if self.stage != Stage.SETTLED:
            return self.stage.words
        if self.invoice.kind == DocumentKind.CREDIT_NOTE:
            return "issued"
        if self.credited_cents and self.credited_cents >= self.invoice.total_cents:
            return "credited"
        paid = self.paid_cents or self.invoice.prepaid_nano or self.invoice.carried_cents
        return "paid" if paid else "nothing due"


def worst(standings: Iterable[Standing]) -> Stage:
    """An organization stands where its worst invoice does."""
    return max((each.stage for each in standings), default=Stage.SETTLED)
