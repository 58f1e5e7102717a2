"""The journal for an accounting system: each row one account, debited or credited.

By day, each account's requests and entries are summed; or each line and entry stands for itself.
Debits and credits of a file are equal, day by day and voucher by voucher.
"""

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from django.db.models import Sum

from controlplane.billing import cells
from controlplane.billing.exports.models import ExportGrain
from controlplane.billing.exports.pages.lines import AHEAD_MAX, LineReader, entries_read, place_from
from controlplane.billing.exports.pages.scope import ExportPage, Scope
from controlplane.billing.ledger.accounts import account_text
from controlplane.billing.ledger.models import POSTING_KINDS, JournalEntry
from controlplane.billing.ledger.services import BOOKED_DAYS_MAX
from controlplane.core.queries import rows
from controlplane.kernel.ids import public_id
from controlplane.telemetry.reading import TooMuchToRead, bounded_read
from controlplane.telemetry.selectors_requests import id_floor

COLUMNS = cells.columns("""
    date            time   Posting date, UTC.
    voucher         text   Transaction id: `day-` and the date, or the id of one line.
    booked_at       time   Posting time; null for daily sums.
    kind            text   `day`, or the kind of the line or entry.
    account         text   Account name in the chart of accounts.
    debit_usd       number Debit, exact, nine decimals; null for a credit.
    credit_usd      number Credit; null for a debit.
    amount_nano_usd number Signed amount in nano-USD: debits positive, credits negative.
    currency        text   `USD`.
    reason          free   Reason for an entry.
    reference       free   Reference of an entry: an invoice, a payment or a ticket.
    reverses        text   Request that a reversal corrects.
""")
ENTRIES = "entries:"
_DAY, _LEAST = timedelta(days=1), timedelta(seconds=1)
_SUMS = """
    SELECT debit, credit, sum(amount)::bigint FROM transfers
    WHERE organization = %s AND request >= %s AND request < %s AND booked_at >= %s
      AND booked_at < %s AND kind = ANY (%s) GROUP BY debit, credit
"""


class JournalPages:
    """By day: a day a page. Line by line: first the requests', then the entries."""

    columns = COLUMNS

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._by_day = ExportGrain(scope.grain) is ExportGrain.DAY
        self._reader = LineReader(scope.organization, scope.start, scope.through)
        self._write = cells.line_writer(COLUMNS, raw=scope.raw)

    def page(self, cursor: str) -> ExportPage:
        if self._by_day:
            return self._day(datetime.fromtimestamp(int(cursor), UTC) if cursor else None)
        if cursor.startswith(ENTRIES):
            return self._entries(cursor.removeprefix(ENTRIES))
        return self._lines(cursor)

    def _day(self, start: datetime | None) -> ExportPage:
        scope = self._scope
        start = start or scope.start
        end = min(start + _DAY, scope.through)
        sums = _Sums()
        sums.add(_request_sums(scope, start, end))
        sums.add(_entry_sums(scope, start, end))
        after = end if end < scope.through else None
        return ExportPage(
            lines=[
                self._line(start, f"day-{start.date()}", "day", account, amount)
                for account, amount in sums.rows()
            ],
            nano=sums.debited,
            cursor=str(int(after.timestamp())) if after else None,
            share=scope.share(end),
        )

    def _lines(self, cursor: str) -> ExportPage:
        place = place_from(cursor) if cursor else self._reader.first()
        found, after = self._reader.read(place)
        return ExportPage(
            lines=[
                self._line(
                    line.booked_at,
                    f"{public_id('req', line.request)}-{line.slot}",
                    line.kind,
                    account,
                    amount,
                )
                for line in found
                for account, amount in ((line.debit, line.amount), (line.credit, -line.amount))
            ],
            nano=sum(line.amount for line in found),
            cursor=after.text() if after else ENTRIES,
            share=self._reader.share(after) if after else 1.0,
        )

    def _entries(self, cursor: str) -> ExportPage:
        found, after = entries_read(self._scope, cursor)
        return ExportPage(
            lines=[
                self._line(
                    entry.booked_at,
                    public_id("entry", entry.id),
                    entry.kind,
                    account,
                    amount,
                    entry,
                )
                for entry in found
                for account, amount in ((entry.debit, entry.amount), (entry.credit, -entry.amount))
            ],
            nano=sum(entry.amount for entry in found),
            cursor=ENTRIES + after if after else None,
            share=1.0,
        )

    def _line(
        self,
        at: datetime,
        voucher: str,
        kind: str,
        account: str,
        amount: int,
        entry: JournalEntry | None = None,
    ) -> str:
        debited = amount > 0
        side = cells.decimal_text(abs(amount), cells.NANO_PLACES)
        values: tuple[cells.Value, ...] = (
            at.astimezone(UTC).date().isoformat(),
            voucher,
            None if kind == "day" else cells.instant_text(at),
            kind,
            account_text(account),
            side if debited else None,
            None if debited else side,
            amount,
            "USD",
            entry.reason if entry else None,
            entry.reference or None if entry else None,
            public_id("req", entry.reverses) if entry and entry.reverses else None,
        )
        return self._write(values)


class _Sums:
    def __init__(self) -> None:
        self._debits: Counter[str] = Counter()
        self._credits: Counter[str] = Counter()
        self.debited = 0

    def add(self, pairs: Iterable[tuple[str, str, int]]) -> None:
        for debit, credit, amount in pairs:
            self._debits[debit] += amount
            self._credits[credit] += amount
            self.debited += amount

    def rows(self) -> list[tuple[str, int]]:
        """Debits, then credits as negative amounts, each by account."""
        return [
            *sorted(self._debits.items()),
            *((account, -amount) for account, amount in sorted(self._credits.items())),
        ]


def _request_sums(scope: Scope, opens: datetime, closes: datetime) -> list[tuple[str, str, int]]:
    """What requests booked in [opens, closes); halved where that cannot be read in time."""
    try:
        return _read_sums(scope, opens, closes)
    except TooMuchToRead:
        if closes - opens <= _LEAST:
            raise
    middle = opens + (closes - opens) / 2
    return [*_request_sums(scope, opens, middle), *_request_sums(scope, middle, closes)]


def _read_sums(scope: Scope, opens: datetime, closes: datetime) -> list[tuple[str, str, int]]:
    low = id_floor(opens - timedelta(days=BOOKED_DAYS_MAX))
    high = id_floor(closes + AHEAD_MAX)
    values = [scope.organization, low, high, opens, closes, list(POSTING_KINDS)]
    with bounded_read([scope.organization]):
        return [(debit, credit, amount) for debit, credit, amount in rows(_SUMS, values)]


def _entry_sums(scope: Scope, opens: datetime, closes: datetime) -> list[tuple[str, str, int]]:
    with bounded_read([scope.organization]):
        entries = JournalEntry.objects.filter(
            organization=scope.organization, booked_at__gte=opens, booked_at__lt=closes
        )
        summed = entries.order_by().values_list("debit", "credit").annotate(nano=Sum("amount"))
        return [(debit, credit, int(nano)) for debit, credit, nano in summed]
