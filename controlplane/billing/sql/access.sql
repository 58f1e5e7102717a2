-- Who may do what with money. Pages see rows of their own organizations; gateways and jobs only call
-- functions; those run as a role that cannot log in and has its own policies.

DO $$
DECLARE
    name text;
    mine text := 'organization = ANY ((SELECT NULLIF(current_setting(''app.orgs'', true), '''')'
                 '::uuid[])::uuid[])';
BEGIN
    FOREACH name IN ARRAY ARRAY[
        'budgets', 'budget_alerts', 'budget_terms', 'open_holds', 'transfers', 'ledger_hours',
        'ledger_seals', 'journal_entries', 'period_closes', 'period_close_jobs', 'reconciliations',
        'document_numbers', 'billing_profiles', 'invoices', 'wallet_grants', 'payment_orders',
        'payments', 'exports', 'inference_claims'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', name);
    END LOOP;
    FOREACH name IN ARRAY ARRAY[
        'budgets', 'budget_alerts', 'budget_terms', 'open_holds', 'transfers', 'ledger_hours',
        'ledger_seals', 'journal_entries', 'period_closes', 'reconciliations'] LOOP
        EXECUTE format('CREATE POLICY functions_all ON %I TO sluice_ledger USING (true) '
                       'WITH CHECK (true)', name);
        EXECUTE format('CREATE POLICY owner_reads ON %I FOR SELECT TO CURRENT_USER USING (true)',
                       name);
        EXECUTE format('GRANT SELECT ON %I TO sluice_app', name);
    END LOOP;
    FOREACH name IN ARRAY ARRAY['budgets', 'budget_terms', 'open_holds', 'transfers',
                                'ledger_hours', 'journal_entries'] LOOP
        EXECUTE format('CREATE POLICY tenant_reads ON %I FOR SELECT TO sluice_app USING (%s)',
                       name, mine);
    END LOOP;
    FOREACH name IN ARRAY ARRAY['budget_alerts', 'period_closes', 'reconciliations'] LOOP
        EXECUTE format('CREATE POLICY tenant ON %I TO sluice_app USING (%s)', name, mine);
    END LOOP;
    FOREACH name IN ARRAY ARRAY['billing_profiles', 'invoices', 'wallet_grants', 'payment_orders',
                                'payments'] LOOP
        EXECUTE format('CREATE POLICY tenant ON %I TO sluice_app USING (%s)', name, mine);
        EXECUTE format('CREATE POLICY owner_reads ON %I FOR SELECT TO CURRENT_USER USING (true)',
                       name);
        EXECUTE format('GRANT SELECT, INSERT ON %I TO sluice_app', name);
    END LOOP;
    EXECUTE format('CREATE POLICY close_job_tenant ON period_close_jobs TO sluice_app USING (%s)',
                   mine);
END $$;

GRANT SELECT, INSERT, UPDATE ON budgets, budget_terms, ledger_hours TO sluice_ledger;
GRANT SELECT, INSERT, UPDATE, DELETE ON open_holds TO sluice_ledger;
GRANT SELECT, INSERT ON transfers, ledger_seals, journal_entries, period_closes TO sluice_ledger;
-- Seals name no organization: a hash, a count and a total that jobs and pages may show.
CREATE POLICY anyone_reads ON ledger_seals FOR SELECT TO sluice_app USING (true);
GRANT INSERT ON reconciliations TO sluice_app;
GRANT INSERT, DELETE ON budget_alerts TO sluice_app;
GRANT SELECT, INSERT, UPDATE ON period_close_jobs TO sluice_app;

CREATE POLICY functions_count ON document_numbers TO sluice_ledger USING (true) WITH CHECK (true);
GRANT SELECT, UPDATE ON document_numbers TO sluice_ledger;
GRANT UPDATE ON billing_profiles TO sluice_app;
GRANT UPDATE (state, decided_by, decided_label, decided_at) ON wallet_grants TO sluice_app;

CREATE POLICY functions_read ON exports FOR SELECT TO sluice_ledger USING (true);
CREATE POLICY export_tenant ON exports TO sluice_app USING (
    organization_id = ANY (
        (SELECT nullif(current_setting('app.orgs', true), '')::uuid[])::uuid[]
    )
);
-- Rows stay when their files go.
GRANT SELECT, INSERT, UPDATE ON exports TO sluice_app;
GRANT SELECT ON exports TO sluice_ledger;

CREATE POLICY inference_claims_functions ON inference_claims TO sluice_ledger
    USING (true) WITH CHECK (true);
GRANT SELECT, INSERT, UPDATE, DELETE ON inference_claims TO sluice_ledger;
