"""Wallets under /api/billing/: balances, and what people put in."""

import uuid
from typing import Annotated, TypedDict

import msgspec
from django.core.exceptions import ValidationError
from rest_framework.response import Response

from controlplane.billing.api import MoneyView
from controlplane.billing.approvals.models import WALLET_KINDS, GrantKind
from controlplane.billing.approvals.selectors import grant_list
from controlplane.billing.approvals.shapes import GrantJson, grant_json
from controlplane.billing.wallets.selectors import Wallet, wallet_get
from controlplane.billing.wallets.services import Gift, wallet_grant
from controlplane.core.answers import answer_of
from controlplane.core.api.schema import CREATED, operation
from controlplane.core.models import uuid7
from controlplane.core.permissions import Action
from controlplane.kernel.ids import kind
from controlplane.tenants.access import require


class GrantBody(msgspec.Struct, forbid_unknown_fields=True):
    """Money paid in (`topup`) or given (`credit`), and why; `id` makes a repeat do nothing.

    `becomes_prepaid` confirms that the first top-up makes the organization prepaid.
    """

    kind: str
    amount_nano: int
    reason: str
    id: Annotated[uuid.UUID, kind("grant")] | None = None
    becomes_prepaid: bool = False


class WalletJson(TypedDict):
    """A balance in nano-USD; `prepaid` is false where invoices are paid instead."""

    object: str
    prepaid: bool
    balance_nano: int
    available_nano: int
    held_nano: int
    put_in_nano: int
    charged_nano: int
    low: bool
    days_left: int | None


def wallet_json(found: Wallet | None) -> WalletJson:
    low, shown = found is not None and found.low, found or Wallet(0, 0, 0, 0)
    prepaid = found is not None
    return answer_of(WalletJson, shown, object="wallet", prepaid=prepaid, low=low)


class OneWallet(MoneyView, at="wallet"):
    @operation(answer=WalletJson)
    def get(self) -> WalletJson:
        """Get the wallet; all zero if the organization is not prepaid."""
        return wallet_json(wallet_get(**self.whose()))


class Grants(MoneyView, at="grants"):
    @operation(list_of=GrantJson)
    def get(self) -> Response:
        """List grants in any state, newest first."""
        return self.page(grant_list(**self.whose(), ask=self.page_ask("grant")), grant_json)

    @operation(
        body=GrantBody,
        answer={CREATED: GrantJson},
        example={"kind": "topup", "amount_nano": 50_000_000_000, "reason": "transfer 17"},
        step_up=True,
    )
    def post(self) -> GrantJson:
        """Book a top-up or credit; `pending` if it needs approval."""
        require(self.actor(), Action.CREDIT_GRANT)
        wanted = self.body(GrantBody)
        if wanted.kind not in WALLET_KINDS:
            raise ValidationError({"kind": f"Must be one of {', '.join(WALLET_KINDS)}."})
        made = wallet_grant(
            **self.whose(),
            gift=Gift(
                kind=GrantKind(wanted.kind), amount_nano=wanted.amount_nano, reason=wanted.reason
            ),
            form=wanted.id or uuid7(),
            becomes_prepaid=wanted.becomes_prepaid,
        )
        return grant_json(made)
