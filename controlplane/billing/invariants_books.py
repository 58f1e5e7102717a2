"""What L2, L3 and L7 say of wallets, the journal, budgets' terms and hours: queries of breaches.

Each names in its one column what is wrong; none where all is right. One statement is one view.
"""

# Lines of a request debit its wallet where that was among the hold's budgets.
UNBALANCED = """
    SELECT t.request FROM transfers t
    LEFT JOIN transfers h ON h.request = t.request AND h.slot = 0
    WHERE t.request >= %s AND t.request < %s
      AND (t.amount <= 0 OR t.debit <> ledger_payer(t.organization, h.budgets)
           OR t.credit <> 'revenue:' || t.model)
"""
WALLETS = """
    SELECT 'the wallet of ' || coalesce(b.organization, j.organization) || ' had '
           || coalesce(j.nano, 0) || ' put in, its limit is ' || coalesce(b.lim, 0)
    FROM (SELECT * FROM budgets WHERE scope = 'wallet') AS b FULL JOIN (
        SELECT organization, sum(CASE 'wallet:' || organization WHEN credit THEN amount
                                                                ELSE -amount END) AS nano
        FROM journal_entries WHERE 'wallet:' || organization IN (debit, credit)
        GROUP BY organization
    ) AS j ON j.organization = b.organization
    WHERE coalesce(b.lim, 0) <> coalesce(j.nano, 0)
"""
TERMS = """
    SELECT 'budget ' || b.id || ' is limited to ' || b.lim || ', not as its terms say'
    FROM budgets b JOIN budget_terms t ON t.budget = b.id
    WHERE b.lim <> greatest(0, least(4000000000000000000,
                                     t.base::numeric + t.allowance + t.carried + t.given))
       OR b.organization <> t.organization
"""
REVERSED = """
    SELECT 'more than was booked under ' || j.reverses || ' is reversed'
    FROM (SELECT reverses, organization, sum(amount) AS nano FROM journal_entries
          WHERE reverses IS NOT NULL GROUP BY reverses, organization) AS j
    WHERE j.nano > coalesce(
        (SELECT e.amount FROM journal_entries e
         WHERE e.id = j.reverses AND e.organization = j.organization AND e.kind <> 'reversal'),
        (SELECT sum(t.amount) FROM transfers t
         WHERE t.request = j.reverses AND t.organization = j.organization
           AND t.kind IN ('settle', 'overage', 'late')), 0)
"""
FORGED = """
    SELECT 'entry ' || id || ' is not as it was booked' FROM journal_entries
    WHERE payload_hash <> sha256(convert_to(json_build_array(
        kind, debit, credit, amount, reason, reference, reverses)::text, 'UTF8'))
"""
# Of one day: what is sealed, summed from the lines, against the hours kept of it.
HOURS = """
    WITH lines AS (
        SELECT organization, date_trunc('hour', booked_at, 'UTC') AS hour, project, key, model,
               price_version, input_pico, cached_pico, output_pico,
               count(*) FILTER (WHERE kind <> 'overage') AS requests, sum(uncached) AS uncached,
               sum(cached) AS cached, sum(output) AS output, sum(amount) AS nano
        FROM transfers
        WHERE request >= request_floor(greatest(%s - interval '8 days', 'epoch'))
          AND booked_at >= %s AND booked_at < %s
          AND booked_at < (SELECT max(to_at) FROM ledger_seals)
          AND kind IN ('settle', 'overage', 'late')
        GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9
    ), kept AS (SELECT * FROM ledger_hours WHERE hour >= %s AND hour < %s)
    SELECT 'the hour ' || coalesce(l.hour, k.hour) || ' of ' || coalesce(l.organization,
           k.organization) || ' is ' || coalesce(k.nano, 0) || ', its lines ' || coalesce(l.nano, 0)
    FROM lines l FULL JOIN kept k USING (organization, hour, project, key, model, price_version,
                                         input_pico, cached_pico, output_pico)
    WHERE (l.requests, l.uncached, l.cached, l.output, l.nano)
          IS DISTINCT FROM (k.requests, k.uncached, k.cached, k.output, k.nano)
"""
DAYS = """
    SELECT generate_series(date_trunc('day', least(min(from_at), (SELECT min(hour) FROM
                           ledger_hours)), 'UTC'), max(to_at), interval '1 day') FROM ledger_seals
"""
BOOKED = "SELECT count(*) FROM journal_entries"
GUARDED = ("transfers", "ledger_seals", "journal_entries", "period_closes")
