"""The invariants L1 to L7 of the ledger, each checked from the rows, not from what code intended.

Reads slice by slice of request ids, so that no transaction is long; safe beside live traffic, since
each comparison is either one statement's view or bounded by counters read before and after.
"""

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.backends.utils import CursorWrapper

from controlplane.billing.ledger.seals import seal_breaches
from controlplane.billing.months.closes import close_breach
from controlplane.billing.months.models import PeriodClose
from controlplane.billing.verification import books
from controlplane.kernel.price import Price, TokenCounts, charge_nano

EXAMPLES_MAX = 5
SLICE = timedelta(hours=1)
SWEEP_GRACE_S = 60
SETTLE_GRACE_S = 3_600

TERMINAL = """
    SELECT t.request FROM (
        SELECT request, max(amount) FILTER (WHERE slot = 0) AS held,
               max(amount) FILTER (WHERE slot = 1) AS resolved,
               max(kind) FILTER (WHERE slot = 1) AS first,
               max(kind) FILTER (WHERE slot = 2) AS second
        FROM transfers WHERE request >= %s AND request < %s GROUP BY request
    ) AS t LEFT JOIN open_holds o ON o.request = t.request
    WHERE (t.first IS NULL) <> (o.request IS NOT NULL)
       OR t.first IN ('release', 'expire') AND t.held IS DISTINCT FROM t.resolved
       OR t.first = 'settle' AND t.resolved > t.held
       OR t.second = 'overage' AND (t.first <> 'settle' OR t.resolved IS DISTINCT FROM t.held)
       OR t.second = 'late' AND t.first <> 'expire'
"""
POSTED = """
    SELECT b.id, sum(t.amount)::bigint
    FROM transfers t JOIN transfers h ON h.request = t.request AND h.slot = 0,
         unnest(h.budgets) AS b(id) LEFT JOIN budget_parts p ON p.budget = b.id
    WHERE t.request >= %s AND t.request < %s AND h.request >= %s AND h.request < %s
      AND t.kind IN ('settle', 'overage', 'late') AND t.model = coalesce(p.model, t.model)
    GROUP BY b.id
"""
CHARGES = """
    SELECT request, organization, model, sum(amount)::bigint, sum(uncached)::int,
           sum(cached)::int, sum(output)::int, min(input_pico), min(cached_pico), min(output_pico)
    FROM transfers WHERE request >= %s AND request < %s AND kind IN ('settle', 'overage', 'late')
    GROUP BY request, organization, model
"""
UNPOSTED = """
    SELECT t.organization, m.name, sum(t.amount)::bigint
    FROM transfers t JOIN transfers h ON h.request = t.request AND h.slot = 0,
         LATERAL (SELECT t.model UNION ALL SELECT jsonb_object_keys(h.others)) AS m(name)
    WHERE t.request >= %s AND t.request < %s AND h.request >= %s AND h.request < %s
      AND t.kind = 'expire' GROUP BY t.organization, m.name
"""
RECORDS = """
    SELECT r.request, r.cost_nano, r.prompt_tokens, r.output_tokens,
           r.started_at < clock_timestamp() - %s * interval '1 second'
           AND NOT EXISTS (SELECT 1 FROM open_holds o WHERE o.request = r.request)
           AND NOT EXISTS (SELECT 1 FROM transfers t WHERE t.request = r.request
                           AND t.request >= %s AND t.request < %s AND t.kind = 'expire')
    FROM request_records r
    WHERE r.request >= %s AND r.request < %s AND r.cost_nano > 0
"""
USAGE = """
    SELECT u.organization, u.model, sum(u.nano)::bigint,
           coalesce((SELECT sum(o.amount) FROM open_holds o
                     WHERE o.organization = u.organization
                       AND (o.model = u.model OR o.others ? u.model)), 0)::bigint
    FROM usage_rollups u WHERE u.step_s = 86400 GROUP BY u.organization, u.model
"""
ORPHANS = """
    SELECT o.request FROM open_holds o WHERE NOT EXISTS (
        SELECT 1 FROM transfers t WHERE t.request = o.request AND t.slot = 0
                                    AND t.amount = o.amount)
"""
OVERDUE = (
    "SELECT request FROM open_holds WHERE expires_at < clock_timestamp() - %s * interval '1 s'"
)
OVERSPENT = "SELECT id FROM budgets WHERE held < 0 OR posted < 0 OR posted + held > lim + over"
DIFFERENT = """
    SELECT b.id FROM budgets b LEFT JOIN (
        SELECT m.id, sum(o.amount) AS total FROM open_holds o, unnest(o.budgets) AS m(id)
        GROUP BY m.id) AS s ON s.id = b.id
    WHERE b.held <> coalesce(s.total, 0)
"""
UNGUARDED = """
    SELECT c.relname || ' lacks an enabled ' || w.name FROM pg_class c
    CROSS JOIN (VALUES ('append_only'), ('never_truncated')) AS w(name)
    WHERE (c.relname = ANY (%s)
           OR c.oid IN (SELECT inhrelid FROM pg_inherits WHERE inhparent = 'transfers'::regclass))
      AND c.relkind IN ('r', 'p') AND c.relnamespace = 'public'::regnamespace
      AND NOT EXISTS (SELECT 1 FROM pg_trigger t WHERE t.tgrelid = c.oid AND t.tgname = w.name
                                                   AND t.tgenabled <> 'D')
    UNION ALL
    SELECT r.rolname || ' may ' || p.name || ' ' || t.name
    FROM pg_roles r, (VALUES ('UPDATE'), ('DELETE'), ('TRUNCATE')) AS p(name),
         unnest(%s::text[]) AS t(name)
    WHERE r.rolname IN ('sluice_app', 'sluice_gateway', 'sluice_ledger')
      AND has_table_privilege(r.rolname, t.name, p.name)
"""


class Finding:
    """One invariant: how much was looked at, and what broke it."""

    def __init__(self, name: str, what: str) -> None:
        self.name = name
        self.what = what
        self.checked = 0
        self.breaches = 0
        self.examples: list[str] = []

    def breach(self, example: object) -> None:
        """Count a breach and keep the first few by name."""
        self.breaches += 1
        if len(self.examples) < EXAMPLES_MAX:
            self.examples.append(str(example))


class Verifier:
    """One run over the whole ledger; `findings` holds L1 to L7 in order."""

    def __init__(self, cursor: CursorWrapper) -> None:
        self._cursor = cursor
        names = (
            "each hold is open or resolved once, and its lines fit it",
            "every line and entry balances; budgets and wallets are the sum of their lines",
            "the ledger is the priced usage, line by line, by the hour and against telemetry",
            "spent plus held is within the limit, and held is the sum of open holds",
            "no hold is open past its deadline",
            "recorded tokens are billed tokens, or fewer",
            "append-only guards stand, every seal and closed month matches its rows",
        )
        self.findings = [Finding(f"L{n}", what) for n, what in enumerate(names, start=1)]
        self._posted: Counter[Any] = Counter()
        self._booked: Counter[tuple[Any, str]] = Counter()
        self._slack: Counter[tuple[Any, str]] = Counter()

    def run(self) -> list[Finding]:
        """Check everything; needs a connection that sees all rows."""
        terminal, balance, priced, limits, deadline, _, sealed = self.findings
        before = self._counters()
        for slice_ in self._slices():
            self._check_slice(slice_)
        self._check_counters(balance, before)
        self._check_usage(priced)
        self._check_books(balance, priced)
        self._each(terminal, ORPHANS)
        limits.checked = len(before)
        self._each(limits, OVERSPENT)
        self._each(limits, DIFFERENT)
        deadline.checked = self._count("SELECT count(*) FROM open_holds")
        self._each(deadline, OVERDUE, SWEEP_GRACE_S)
        self._each(sealed, UNGUARDED, list(books.GUARDED), list(books.GUARDED))
        self._each(sealed, books.FORGED)
        sealed.checked = self._count("SELECT count(*) FROM ledger_seals")
        for breach in seal_breaches(self._cursor):
            sealed.breach(breach)
        for close in PeriodClose.objects.using(self._cursor.db.alias):
            if told := close_breach(close, lambda query, values: self._rows(query, *values)):
                sealed.breach(told)
        return self.findings

    def _check_books(self, balance: Finding, priced: Finding) -> None:
        """Wallets, journal and budgets' terms; the hours, week by week."""
        balance.checked += self._count(books.BOOKED)
        for query in (books.WALLETS, books.TERMS, books.REVERSED, books.GIVEN_BACK, books.CARRIED):
            self._each(balance, query)
        for (week,) in self._rows(books.WEEKS):
            end = week + timedelta(days=7)
            self._each(priced, books.HOURS, week, week, end, week, end)

    def _slices(self) -> Iterator[tuple[Any, Any]]:
        """The hours that have requests, as ranges of ids."""
        following = "SELECT (SELECT request FROM transfers WHERE request >= %s ORDER BY 1 LIMIT 1)"
        end = UUID(int=0)
        while (first := self._value(following, end)) is not None:
            start = datetime.fromtimestamp((first.int >> 80) / 1000, UTC)
            start = start.replace(minute=0, second=0, microsecond=0)
            floors = "SELECT request_floor(%s), request_floor(%s)"
            floor, end = self._rows(floors, start, start + SLICE)[0]
            yield floor, end

    def _check_slice(self, slice_: tuple[Any, Any]) -> None:
        terminal, balance, priced, _, _, tokens, _ = self.findings
        count = "SELECT count(*), count(DISTINCT request) FROM transfers"
        lines, requests = self._rows(count + " WHERE request >= %s AND request < %s", *slice_)[0]
        balance.checked += lines
        terminal.checked += requests
        self._each(terminal, TERMINAL, *slice_)
        self._each(balance, books.UNBALANCED, *slice_)
        self._posted.update(dict(self._rows(POSTED, *slice_, *slice_)))
        for organization, model, nano in self._rows(UNPOSTED, *slice_, *slice_):
            self._slack[organization, model] += nano
        charges = {row[0]: row for row in self._rows(CHARGES, *slice_)}
        self._check_prices(priced, charges)
        records = self._rows(RECORDS, SETTLE_GRACE_S, *slice_, *slice_)
        self._check_records(priced, tokens, charges, records)

    def _check_prices(self, priced: Finding, charges: dict[Any, tuple[Any, ...]]) -> None:
        for request, organization, model, nano, *rest in charges.values():
            uncached, cached, output, input_pico, cached_pico, output_pico = rest
            price = Price(
                version=0, input_pico=input_pico, cached_pico=cached_pico, output_pico=output_pico
            )
            counts = TokenCounts(uncached=uncached, cached=cached, output=output)
            priced.checked += 1
            self._booked[organization, model] += nano
            if charge_nano(price, counts) != nano:
                priced.breach(f"{request} booked {nano}, priced {charge_nano(price, counts)}")

    @staticmethod
    def _check_records(
        priced: Finding,
        tokens: Finding,
        charges: dict[Any, tuple[Any, ...]],
        records: list[tuple[Any, ...]],
    ) -> None:
        for request, cost, prompt, output, must_be_booked in records:
            charge = charges.get(request)
            if charge is None:
                if must_be_booked:
                    priced.breach(f"{request} cost {cost}, and nothing is booked")
                continue
            tokens.checked += 1
            if charge[3] != cost:
                priced.breach(f"{request} cost {cost}, booked {charge[3]}")
            if prompt > charge[4] + charge[5] or output > charge[6]:
                tokens.breach(f"{request} recorded more tokens than were billed")

    def _counters(self) -> dict[Any, int]:
        return dict(self._rows("SELECT id, posted FROM budgets"))

    def _check_counters(self, balance: Finding, before: dict[Any, int]) -> None:
        """What was read in between lies between the counters read before and after."""
        for budget, after in self._counters().items():
            summed = self._posted[budget]
            if not before.get(budget, 0) <= summed <= after:
                balance.breach(f"budget {budget} counts {after}, its lines sum to {summed}")

    def _check_usage(self, priced: Finding) -> None:
        """Telemetry may miss requests, but never has more than was booked, expired or is open."""
        for organization, model, nano, open_nano in self._rows(USAGE):
            booked = self._booked[organization, model]
            if nano > booked + self._slack[organization, model] + open_nano:
                priced.breach(f"usage of {model} by {organization} is {nano}, booked {booked}")

    def _each(self, finding: Finding, query: str, *values: Any) -> None:
        for (example,) in self._rows(query, *values):
            finding.breach(example)

    def _rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        self._cursor.execute(query, values or None)
        return list(self._cursor.fetchall())

    def _value(self, query: str, *values: Any) -> Any:
        return self._rows(query, *values)[0][0]

    def _count(self, query: str) -> int:
        return int(self._value(query))
