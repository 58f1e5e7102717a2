"""What people give or book by hand, and who decided on it."""

from typing import ClassVar

from django.db import models
from django.db.models import CheckConstraint, Index, Q

from controlplane.core.models import BaseModel

REASON_CHARS_MAX = 500
ABOUT_CHARS_MAX = 100


class GrantKind(models.TextChoices):
    """Money that came in by hand, or that is given: into a wallet, on an invoice, for a request."""

    TOPUP = "topup", "Top-up"
    CREDIT = "credit"
    CREDIT_NOTE = "credit_note", "Credit note"
    REVERSAL = "reversal"
    PAYMENT = "payment"


# What goes into a wallet, or lowers what is owed, without anything that it is about.
WALLET_KINDS = (GrantKind.TOPUP, GrantKind.CREDIT)


class GrantState(models.TextChoices):
    """A grant above the limit waits for a second person."""

    PENDING = "pending"
    BOOKED = "booked"
    REFUSED = "refused"


class WalletGrant(BaseModel):
    """What a person gives or books by hand, and who decided on it.

    `subject` is the invoice or request that it is about, `about` says so in words; `terms` are
    what else its booking takes.
    """

    organization = models.UUIDField()
    kind = models.CharField(max_length=11, choices=GrantKind.choices)
    subject = models.UUIDField(null=True, blank=True)
    about = models.CharField(max_length=ABOUT_CHARS_MAX, blank=True, default="")
    terms = models.JSONField(default=dict, blank=True)
    amount_nano = models.BigIntegerField()
    reason = models.CharField(max_length=REASON_CHARS_MAX)
    state = models.CharField(max_length=7, choices=GrantState.choices)
    asked_by = models.UUIDField(null=True, blank=True)
    asked_label = models.TextField()
    decided_by = models.UUIDField(null=True, blank=True)
    decided_label = models.TextField(blank=True, default="")
    decided_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "wallet_grants"
        constraints: ClassVar = [
            CheckConstraint(condition=Q(kind__in=GrantKind.values), name="wallet_grant_kind_known"),
            CheckConstraint(
                condition=Q(state__in=GrantState.values), name="wallet_grant_state_known"
            ),
            CheckConstraint(condition=Q(amount_nano__gt=0), name="wallet_grant_is_positive"),
        ]
        indexes: ClassVar = [
            Index(fields=["organization", "-id"], name="wallet_grant_newest_first")
        ]
