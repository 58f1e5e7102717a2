"""Giving back under /api/billing/organizations/<id>/: invoices and requests, by staff."""

import uuid
from typing import Annotated

import msgspec
from rest_framework.response import Response

from controlplane.billing.api import MoneyView
from controlplane.billing.approvals.models import WalletGrant
from controlplane.billing.approvals.shapes import WAITS, GrantJson, grant_json
from controlplane.billing.documents.profiles import invoice_get
from controlplane.billing.invoices.api import WholeInvoiceJson, whole_json
from controlplane.billing.ledger.api import EntryJson, entry_json
from controlplane.billing.reversals.credit_notes import credit_note_issue
from controlplane.billing.reversals.requests import request_reverse
from controlplane.core.api.schema import CREATED, operation
from controlplane.core.models import uuid7
from controlplane.core.permissions import Action
from controlplane.kernel.ids import kind
from controlplane.tenants.access import require


class CreditedBody(msgspec.Struct, forbid_unknown_fields=True):
    """A line by its position, and how much of it is given back."""

    position: int
    amount_nano: int


class CreditBody(msgspec.Struct, forbid_unknown_fields=True):
    """Why, and which lines; without lines all that is left. Sent twice with an id: given once."""

    reason: str
    lines: list[CreditedBody] | None = None
    id: Annotated[uuid.UUID, kind("grant")] | None = None


class ReversalBody(msgspec.Struct, forbid_unknown_fields=True):
    """How much of a request's charge goes back, and why; `id` makes a repeat do nothing."""

    nano: int
    reason: str
    id: Annotated[uuid.UUID, kind("grant")] | None = None


class CreditNotes(MoneyView, at="invoices/<inv:invoice_id>/credit-notes"):
    @operation(
        body=CreditBody,
        answer={CREATED: WholeInvoiceJson, WAITS: GrantJson},
        example={"reason": "wrong model", "lines": [{"position": 1, "amount_nano": 5_000_000}]},
        step_up=True,
    )
    def post(self, invoice_id: uuid.UUID) -> Response:
        """Issue a credit note; 202 with the grant if it needs approval."""
        require(self.actor(), Action.CREDIT_GRANT)
        wanted = self.body(CreditBody)
        invoice = invoice_get(**self.whose(), invoice_id=invoice_id)
        amounts = None
        if wanted.lines is not None:
            amounts = {line.position: line.amount_nano for line in wanted.lines}
        made = credit_note_issue(
            actor=self.actor(),
            invoice=invoice,
            reason=wanted.reason,
            amounts_nano=amounts,
            form=wanted.id,
        )
        if isinstance(made, WalletGrant):
            return Response(grant_json(made), status=WAITS)
        return Response(
            whole_json(**self.whose(), invoice_id=made.id),
            status=CREATED,
        )


class Reversals(MoneyView, at="requests/<req:charge_id>/reversals"):
    @operation(
        body=ReversalBody,
        answer={CREATED: EntryJson, WAITS: GrantJson},
        example={"nano": 1_500_000, "reason": "the output was truncated"},
        step_up=True,
    )
    def post(self, organization_id: uuid.UUID, charge_id: uuid.UUID) -> Response:
        """Reverse part of a charge; 202 with the grant if it needs approval."""
        require(self.actor(), Action.CREDIT_GRANT)
        wanted = self.body(ReversalBody)
        made = request_reverse(
            actor=self.actor(),
            organization=organization_id,
            request=charge_id,
            nano=wanted.nano,
            reason=wanted.reason,
            form=wanted.id or uuid7(),
        )
        if isinstance(made, WalletGrant):
            return Response(grant_json(made), status=WAITS)
        return Response(entry_json(made), status=CREATED)
