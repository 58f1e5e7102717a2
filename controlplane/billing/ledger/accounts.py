"""The chart of accounts: names as the ledger keeps them, built nowhere else. No Django here.

A debit raises what is owed to us (receivable), what we have (cash) and what we spend; a credit
raises what we owe (a wallet, tax, a payable) and what we earn.
"""

from collections.abc import Callable
from enum import StrEnum
from functools import partial
from uuid import UUID

from controlplane.kernel.ids import public_id

# Whose books hold what concerns no tenant, such as the cost of GPUs.
PLATFORM = UUID(int=0)
PAYABLE_GPU = "payable:gpu"
ROUNDING = "rounding"
WRITEOFF = "writeoff"


class AccountKind(StrEnum):
    """The first word of an account: what it is."""

    RECEIVABLE = "receivable"
    WALLET = "wallet"
    REVENUE = "revenue"
    PROMO = "promo"
    ADJUSTMENTS = "adjustments"
    ROUNDING = "rounding"
    TAX = "tax"
    COGS = "cogs"
    PAYABLE = "payable"
    CASH = "cash"
    WRITEOFF = "writeoff"


# Their balance is debits less credits; that of all others is credits less debits.
DEBIT_NORMAL = frozenset(AccountKind) - {
    *(AccountKind.WALLET, AccountKind.REVENUE, AccountKind.TAX, AccountKind.PAYABLE),
}


def _account(kind: AccountKind, of: object) -> str:
    return f"{kind}:{of}"


Of = Callable[[UUID], str]
Named = Callable[[str], str]
receivable: Of = partial(_account, AccountKind.RECEIVABLE)
wallet: Of = partial(_account, AccountKind.WALLET)
promo: Of = partial(_account, AccountKind.PROMO)
# By model, reason, jurisdiction, pool and provider.
revenue: Named = partial(_account, AccountKind.REVENUE)
adjustments: Named = partial(_account, AccountKind.ADJUSTMENTS)
tax: Named = partial(_account, AccountKind.TAX)
cogs: Named = partial(_account, AccountKind.COGS)
cash: Named = partial(_account, AccountKind.CASH)


def wallet_id(organization: UUID) -> UUID:
    """The id of the budget that is an organization's wallet, whether it has one or not.

    The organization's own with the version `f`, which no other id has.
    """
    digits = organization.hex
    return UUID(hex=f"{digits[:12]}f{digits[13:]}")


def account_text(account: str) -> str:
    """An account's name as it is seen, with the tenant's id in its public form."""
    group, _, of = account.partition(":")
    tenants = (AccountKind.RECEIVABLE, AccountKind.WALLET, AccountKind.PROMO)
    return f"{group}:{public_id('org', UUID(of))}" if group in tenants else account


def group_of(account: str) -> AccountKind:
    """What an account is; raises ValueError on a name that none of these functions builds."""
    word, separator, rest = account.partition(":")
    group = AccountKind(word)
    if bool(separator and rest) != (account not in (ROUNDING, WRITEOFF)):
        raise ValueError(account)
    return group


def balance(account: str, debited: int, credited: int) -> int:
    """What is on an account, in nano-USD, as its kind is read."""
    return debited - credited if group_of(account) in DEBIT_NORMAL else credited - debited
