-- Everything booked that is no request: top-ups, credits, payments, corrections, tax, cost. One row
-- is a debit, a credit and an amount above zero, never changed, like a transfer. What it moves in a
-- wallet and gives back to budgets happens in the same transaction, so neither can be without it.

CREATE TABLE journal_entries (
    id uuid NOT NULL PRIMARY KEY,
    organization uuid NOT NULL,
    kind text NOT NULL CHECK (kind IN ('topup', 'credit', 'adjustment', 'reversal',
                                       'invoice_rounding', 'tax', 'payment', 'writeoff', 'cogs')),
    debit text NOT NULL,
    credit text NOT NULL,
    amount bigint NOT NULL CHECK (amount BETWEEN 1 AND 1000000000000000000),
    reason text NOT NULL CHECK (reason <> ''),
    reference text NOT NULL,
    -- An entry or a request.
    reverses uuid,
    idempotency text NOT NULL CHECK (idempotency <> ''),
    actor_label text NOT NULL,
    approved_by text NOT NULL,
    booked_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    payload_hash bytea NOT NULL,
    CONSTRAINT journal_between_two_accounts CHECK (debit <> credit),
    CONSTRAINT journal_reversal_names_what CHECK ((kind = 'reversal') = (reverses IS NOT NULL)),
    CONSTRAINT journal_once UNIQUE (organization, idempotency)
);
CREATE INDEX journal_by_time ON journal_entries (organization, booked_at, id);
CREATE INDEX journal_reversals ON journal_entries (reverses) WHERE reverses IS NOT NULL;

CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON journal_entries
    FOR EACH ROW EXECUTE FUNCTION ledger_refuse_change();
CREATE TRIGGER never_truncated BEFORE TRUNCATE ON journal_entries
    FOR EACH STATEMENT EXECUTE FUNCTION ledger_refuse_change();

DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['journal_entries', 'budget_terms'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', name);
        EXECUTE format('REVOKE ALL ON %I FROM PUBLIC, sluice_app, sluice_gateway', name);
        EXECUTE format('CREATE POLICY functions_all ON %I TO sluice_ledger USING (true) '
                       'WITH CHECK (true)', name);
        EXECUTE format('CREATE POLICY owner_reads ON %I FOR SELECT TO CURRENT_USER USING (true)',
                       name);
        EXECUTE format('CREATE POLICY tenant_reads ON %I FOR SELECT TO sluice_app USING ('
                       'organization = ANY ((SELECT NULLIF(current_setting(''app.orgs'', true), '
                       ''''')::uuid[])::uuid[]))', name);
        EXECUTE format('GRANT SELECT ON %I TO sluice_app', name);
    END LOOP;
END $$;
GRANT SELECT, INSERT ON journal_entries TO sluice_ledger;
GRANT SELECT, INSERT, UPDATE ON budget_terms TO sluice_ledger;
