"""A request's ledger lines in words that finance reads; the accounts' own names stay at hand."""

from collections.abc import Iterable
from dataclasses import dataclass

from controlplane.billing.ledger.accounts import account_text
from controlplane.billing.ledger.models import Transfer

RECEIVABLE = "receivable"
ID_CHARS_SHOWN = 12


@dataclass(frozen=True)
class Account:
    """One side of a line: words, and the name that the ledger itself has for it."""

    words: str
    name: str


@dataclass(frozen=True)
class LedgerLine:
    """One transfer and its two accounts."""

    transfer: Transfer
    debit: Account
    credit: Account


def ledger_lines(
    transfers: Iterable[Transfer], *, organization: str, project: str
) -> list[LedgerLine]:
    """Lines of one request, whose organization and project have these names; empty is unknown."""
    payer = " / ".join(filter(None, (organization, project)))
    return [
        LedgerLine(line, _account(line.debit, payer), _account(line.credit, payer))
        for line in transfers
    ]


def account_names(lines: Iterable[LedgerLine]) -> list[Account]:
    """Each account once, in the order in which they come."""
    return list(dict.fromkeys(side for line in lines for side in (line.debit, line.credit)))


def _account(name: str, payer: str) -> Account:
    name = account_text(name)
    kind, _, of = name.partition(":")
    whose = (payer or of[:ID_CHARS_SHOWN]) if kind == RECEIVABLE else of
    return Account(f"{kind.capitalize()} · {whose}", name)
