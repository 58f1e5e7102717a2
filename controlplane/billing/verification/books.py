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
# Usage of a model in a project and month: what notes gave back of its invoice's lines, and what
# reversals of its requests did that no note took back. Where no note touched it, REVERSED suffices.
GIVEN_BACK = """
    WITH reversed AS (
        SELECT j.id, j.organization, j.amount, t.project, t.model,
               to_char(t.booked_at AT TIME ZONE 'UTC', 'YYYY-MM') AS period
        FROM journal_entries j, LATERAL (
            SELECT project, model, booked_at FROM transfers
            WHERE request = j.reverses AND organization = j.organization
              AND kind IN ('settle', 'overage', 'late') ORDER BY slot LIMIT 1) AS t
        WHERE j.kind = 'reversal'
    ), said AS (
        SELECT i.organization, i.period, i.kind, (l->>'amount_pico')::numeric AS pico,
               l->>'project' AS project, l->>'model' AS model, (l->>'entry')::uuid AS entry
        FROM invoices i, jsonb_array_elements(i.lines) AS l
        WHERE i.kind IN ('invoice', 'credit_note')
          AND (i.organization, i.period) IN (SELECT organization, period FROM reversed)
    ), sums AS (
        SELECT r.organization, r.period, r.project, r.model, sum(r.amount) * 1000 AS reversed,
               coalesce(sum(taken.pico), 0) AS taken
        FROM reversed r LEFT JOIN said AS taken
             ON taken.kind = 'credit_note' AND taken.organization = r.organization
                AND taken.period = r.period AND taken.entry = r.id
        GROUP BY 1, 2, 3, 4
    )
    SELECT 'more than was charged for ' || s.model || ' in ' || s.period || ' is given back to '
           || s.organization
    FROM sums s, LATERAL (
        SELECT sum(pico) FILTER (WHERE kind = 'invoice') AS charged,
               sum(pico) FILTER (WHERE kind = 'credit_note') AS credited
        FROM said WHERE said.organization = s.organization AND said.period = s.period
                    AND said.model = s.model AND said.project = replace(s.project::text, '-', '')
    ) AS b
    WHERE b.credited > 0 AND s.reversed + s.taken + b.credited > b.charged
"""
CARRIED = """
    SELECT 'invoices of ' || organization || ' carry on more than was left over of them' FROM (
        SELECT i.organization, sum(i.carried_cents) AS carried,
               sum(greatest(0, coalesce(p.cents, 0) + coalesce(n.cents, 0) + i.carried_cents
                               - i.total_cents)) AS left_over
        FROM invoices i
        LEFT JOIN (SELECT invoice_id AS id, sum(amount_cents) AS cents FROM payments
                   GROUP BY 1) AS p ON p.id = i.id
        LEFT JOIN (SELECT corrects_id AS id, sum(total_cents) AS cents FROM invoices
                   WHERE kind = 'credit_note' GROUP BY 1) AS n ON n.id = i.id
        WHERE i.kind = 'invoice' GROUP BY i.organization
    ) AS o WHERE carried > left_over
"""
FORGED = """
    SELECT 'entry ' || id || ' is not as it was booked' FROM journal_entries
    WHERE payload_hash <> sha256(convert_to(json_build_array(
        kind, debit, credit, amount, reason, reference, reverses)::text, 'UTF8'))
"""
# Of some days: what is sealed, summed from the lines, against the hours kept of it.
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
    ), kept AS (
        SELECT organization, hour, project, key, model, price_version, input_pico, cached_pico,
               output_pico, sum(requests) AS requests, sum(uncached) AS uncached,
               sum(cached) AS cached, sum(output) AS output, sum(nano) AS nano
        FROM ledger_hours WHERE hour >= %s AND hour < %s GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9
    )
    SELECT 'the hour ' || coalesce(l.hour, k.hour) || ' of ' || coalesce(l.organization,
           k.organization) || ' is ' || coalesce(k.nano, 0) || ', its lines ' || coalesce(l.nano, 0)
    FROM lines l FULL JOIN kept k USING (organization, hour, project, key, model, price_version,
                                         input_pico, cached_pico, output_pico)
    WHERE (l.requests, l.uncached, l.cached, l.output, l.nano)
          IS DISTINCT FROM (k.requests, k.uncached, k.cached, k.output, k.nano)
"""
WEEKS = """
    SELECT generate_series(date_trunc('day', least(min(from_at), (SELECT min(hour) FROM
                           ledger_hours)), 'UTC'), max(to_at), interval '7 days') FROM ledger_seals
"""
BOOKED = "SELECT count(*) FROM journal_entries"
GUARDED = ("transfers", "ledger_seals", "journal_entries", "period_closes")
