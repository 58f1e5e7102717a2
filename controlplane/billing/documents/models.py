"""Invoices, statements and credit notes, and to whom they go.

Documents are never changed (triggers in `billing/sql/invoices.sql`); what became of an invoice is
derived from the rows that refer to it.
"""

from typing import ClassVar

from django.db import models
from django.db.models import CheckConstraint, Index, Q, UniqueConstraint

from controlplane.billing.approvals.models import REASON_CHARS_MAX
from controlplane.billing.documents.lines import NANO_PER_CENT
from controlplane.core.models import BaseModel

CURRENCY = "USD"
NAME_CHARS_MAX = 200
ADDRESS_CHARS_MAX = 500
TAX_ID_CHARS_MAX = 40
JURISDICTION_CHARS_MAX = 40
BASIS_POINTS_MAX = 10_000
TERMS_DAYS_MAX = 365


class DocumentKind(models.TextChoices):
    """An invoice asks for money, a statement shows what a wallet paid, a credit note gives back."""

    INVOICE = "invoice"
    STATEMENT = "statement"
    CREDIT_NOTE = "credit_note"


PREFIXES = {
    DocumentKind.INVOICE: "INV",
    DocumentKind.STATEMENT: "ST",
    DocumentKind.CREDIT_NOTE: "CN",
}


class BillingProfile(BaseModel):
    """To whom an organization's invoices go, on what terms, and which tax they bear."""

    organization = models.UUIDField(unique=True)
    name = models.CharField(max_length=NAME_CHARS_MAX, blank=True, default="")
    address = models.CharField(max_length=ADDRESS_CHARS_MAX, blank=True, default="")
    tax_id = models.CharField(max_length=TAX_ID_CHARS_MAX, blank=True, default="")
    email = models.EmailField(blank=True, default="")
    terms_days = models.SmallIntegerField(null=True, blank=True)
    tax_basis_points = models.SmallIntegerField(default=0)
    tax_jurisdiction = models.CharField(max_length=JURISDICTION_CHARS_MAX, blank=True, default="")

    class Meta:
        db_table = "billing_profiles"
        constraints: ClassVar = [
            CheckConstraint(
                condition=Q(tax_basis_points__range=(0, BASIS_POINTS_MAX)),
                name="billing_profile_tax_bounds",
            ),
            CheckConstraint(
                condition=Q(tax_basis_points=0) | ~Q(tax_jurisdiction=""),
                name="billing_profile_tax_has_jurisdiction",
            ),
            CheckConstraint(
                condition=Q(terms_days__isnull=True) | Q(terms_days__range=(0, TERMS_DAYS_MAX)),
                name="billing_profile_terms_bounds",
            ),
        ]


class Invoice(BaseModel):
    """One issued document with all that it says, as it was when it was issued.

    `lines` are `lines.Line` as JSON, amounts in pico-USD. `subtotal_nano` is their sum, to
    the nano-USD what the ledger has; `prepaid_nano` of it was paid from the wallet. The rest in
    whole cents is `net_cents`, tax comes on top. `carried_cents` of it was there already: what had
    been paid or given back of earlier invoices beyond what they asked for. A credit note's figures
    are positive: they are what it gives back of the document that it `corrects`.
    """

    organization = models.UUIDField()
    kind = models.CharField(max_length=11, choices=DocumentKind.choices)
    number = models.BigIntegerField(editable=False, default=0)
    period = models.CharField(max_length=7)
    issued_on = models.DateField()
    due_on = models.DateField()
    issuer = models.JSONField()
    customer = models.JSONField()
    lines = models.JSONField()
    subtotal_nano = models.BigIntegerField()
    prepaid_nano = models.BigIntegerField(default=0)
    net_cents = models.BigIntegerField()
    tax_cents = models.BigIntegerField()
    total_cents = models.BigIntegerField()
    carried_cents = models.BigIntegerField(default=0)
    tax_basis_points = models.SmallIntegerField()
    tax_jurisdiction = models.CharField(max_length=JURISDICTION_CHARS_MAX, blank=True)
    corrects = models.ForeignKey(
        "self", on_delete=models.PROTECT, null=True, blank=True, related_name="notes"
    )
    reason = models.CharField(max_length=REASON_CHARS_MAX, blank=True, default="")
    digest = models.BinaryField(max_length=32)
    issued_by = models.TextField()

    class Meta:
        db_table = "invoices"
        constraints: ClassVar = [
            UniqueConstraint(fields=["kind", "number"], name="invoice_number_once"),
            UniqueConstraint(
                fields=["organization", "period"],
                condition=~Q(kind="credit_note"),
                name="one_invoice_of_a_period",
            ),
            CheckConstraint(condition=Q(kind__in=DocumentKind.values), name="invoice_kind_known"),
            CheckConstraint(
                condition=Q(total_cents=models.F("net_cents") + models.F("tax_cents")),
                name="invoice_total_is_net_and_tax",
            ),
            CheckConstraint(
                condition=Q(carried_cents=0)
                | Q(kind="invoice", carried_cents__gt=0)
                & Q(carried_cents__lte=models.F("total_cents")),
                name="invoice_carries_at_most_its_total",
            ),
            CheckConstraint(
                condition=Q(kind="credit_note", corrects__isnull=False)
                | (~Q(kind="credit_note") & Q(corrects__isnull=True)),
                name="credit_note_corrects_an_invoice",
            ),
        ]
        indexes: ClassVar = [Index(fields=["organization", "-id"], name="invoice_newest_first")]

    @property
    def title(self) -> str:
        """The number as it is written; a draft has none."""
        return f"{PREFIXES[DocumentKind(self.kind)]}-{self.number:06d}" if self.number else "Draft"

    @property
    def rounding_nano(self) -> int:
        """What whole cents add to the exact sum; booked to the account `rounding`."""
        return self.net_cents * NANO_PER_CENT - (self.subtotal_nano - self.prepaid_nano)

    @property
    def asked_cents(self) -> int:
        """The last sum on it: its total, less what was carried over to it."""
        return self.total_cents - self.carried_cents
