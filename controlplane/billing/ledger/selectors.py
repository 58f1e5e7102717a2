"""The books of one organization as pages and programs read them. Changes nothing."""

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.db.models import Q, Sum

from controlplane.billing.ledger import models
from controlplane.billing.ledger.accounts import AccountKind, balance, group_of
from controlplane.core.answers import FIRST_PAGE, Page, PageAsk, page_read
from controlplane.core.audit.entries import Actor
from controlplane.core.permissions import Action
from controlplane.core.queries import rows, value
from controlplane.telemetry.reading import bounded_read
from controlplane.telemetry.selectors_requests import id_floor
from controlplane.tenants.access import permitted, require

RECONCILIATIONS_SHOWN = 10
LINES_SHOWN, LINE_DAYS = 50, 31
SPEND_MS_MAX = 1_000
# Everything that posts, in one view: sealed hours, the lines since, the journal, and the wallet's
# own counter, which tells a wallet's charges from those to be paid by invoice.
_ACCOUNTS = """
    WITH charges AS (
        SELECT model, sum(nano) AS nano FROM ledger_hours
        WHERE organization = %(organization)s GROUP BY model
        UNION ALL
        SELECT model, sum(amount) FROM transfers
        WHERE organization = %(organization)s AND kind IN ('settle', 'overage', 'late')
          AND request >= request_floor(greatest(%(sealed)s - interval '8 days', 'epoch'))
          AND booked_at >= (SELECT coalesce(max(to_at), '-infinity') FROM ledger_seals)
        GROUP BY model
    ), prepaid AS (
        SELECT coalesce(sum(posted), 0) AS nano FROM budgets
        WHERE organization = %(organization)s AND scope = 'wallet'
    ), moved AS (
        SELECT 'revenue:' || model AS account, 0 AS debit, nano AS credit FROM charges
        UNION ALL
        SELECT 'wallet:' || %(organization)s, nano, 0 FROM prepaid
        UNION ALL
        SELECT 'receivable:' || %(organization)s,
               (SELECT coalesce(sum(nano), 0) FROM charges) - nano, 0 FROM prepaid
        UNION ALL
        SELECT debit, sum(amount), 0 FROM journal_entries
        WHERE organization = %(organization)s GROUP BY debit
        UNION ALL
        SELECT credit, 0, sum(amount) FROM journal_entries
        WHERE organization = %(organization)s GROUP BY credit
    )
    SELECT account, sum(debit)::bigint, sum(credit)::bigint FROM moved
    GROUP BY account HAVING sum(debit) + sum(credit) > 0 ORDER BY account
"""
_SEALED = "SELECT coalesce(max(to_at), 'epoch') FROM ledger_seals"


@dataclass(frozen=True)
class Account:
    """What was ever moved on an account, in nano-USD."""

    name: str
    debited: int
    credited: int

    @property
    def group(self) -> AccountKind:
        return group_of(self.name)

    @property
    def balance(self) -> int:
        """As its kind is read: what is owed to us, what we owe, what was earned."""
        return balance(self.name, self.debited, self.credited)


def account_list(*, actor: Actor, organization: uuid.UUID) -> list[Account]:
    """Every account of the organization's books; raises TooMuchToRead."""
    require(actor, Action.LEDGER_VIEW, organization)
    with bounded_read([organization]):
        values = {"organization": str(organization), "sealed": value(_SEALED)}
        return [Account(*row) for row in rows(_ACCOUNTS, values)]


def charges_on(*, actor: Actor, organization: uuid.UUID, account: str) -> list[models.Transfer]:
    """The newest charges on an account in the last `LINE_DAYS`; raises TooMuchToRead."""
    require(actor, Action.LEDGER_VIEW, organization)
    with bounded_read([organization]):
        found = models.Transfer.objects.filter(
            Q(debit=account) | Q(credit=account),
            organization=organization,
            request__gte=id_floor(datetime.now(UTC) - timedelta(days=LINE_DAYS)),
            kind__in=models.POSTING_KINDS,
        )
        return list(found.order_by("-request", "-slot")[:LINES_SHOWN])


def entry_list(
    *, actor: Actor, organization: uuid.UUID, ask: PageAsk = FIRST_PAGE, account: str = ""
) -> Page[models.JournalEntry]:
    """What was booked besides requests, newest first; on one account, where it is named."""
    with permitted(actor, Action.LEDGER_VIEW, organization):
        found = models.JournalEntry.objects.filter(organization=organization)
        if account:
            found = found.filter(Q(debit=account) | Q(credit=account))
        return page_read(found, ask)


def reconciliation_list(*, actor: Actor, organization: uuid.UUID) -> list[models.Reconciliation]:
    with permitted(actor, Action.LEDGER_VIEW, organization):
        found = models.Reconciliation.objects.filter(organization=organization)
        return list(found[:RECONCILIATIONS_SHOWN])


def transfers_of(request: uuid.UUID) -> list[models.Transfer]:
    return list(models.Transfer.objects.filter(request=request).order_by("slot"))


def request_lines(
    *, organizations: Iterable[uuid.UUID], request: uuid.UUID
) -> list[models.Transfer]:
    """Ledger lines of one request of these organizations, in the order of their slots."""
    with bounded_read(organizations):
        return transfers_of(request)


def request_reversals(*, organization: uuid.UUID, request: uuid.UUID) -> list[models.JournalEntry]:
    """What was given back of a request's charge, oldest first."""
    with bounded_read([organization]):
        found = models.JournalEntry.objects.filter(organization=organization, reverses=request)
        return list(found.order_by("booked_at", "id"))


def request_charge(*, organization: uuid.UUID, request: uuid.UUID) -> int | None:
    """Nano-USD posted for a request; None while nothing has resolved it."""
    lines = request_lines(organizations=[organization], request=request)
    resolved = [line for line in lines if line.kind != models.TransferKind.HOLD]
    if not resolved:
        return None
    return sum(line.amount for line in resolved if line.kind in models.POSTING_KINDS)


def spend_nano(
    *,
    organization: uuid.UUID,
    start: datetime,
    end: datetime,
    model: str = "",
    project: uuid.UUID | None = None,
) -> int:
    """Posted for requests that began in [start, end); raises TooMuchToRead when that takes long."""
    narrowed: dict[str, object] = {"model": model} if model else {}
    if project is not None:
        narrowed["project"] = project
    with bounded_read([organization], SPEND_MS_MAX):
        lines = models.Transfer.objects.filter(
            organization=organization,
            request__gte=id_floor(start),
            request__lt=id_floor(end),
            kind__in=models.POSTING_KINDS,
            **narrowed,
        )
        return int(lines.aggregate(total=Sum("amount"))["total"] or 0)
