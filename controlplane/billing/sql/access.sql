-- Who may do what with money. Pages see rows of their own organizations and set limits; gateways
-- and jobs only call functions; those run as a role that cannot log in and has its own policies.

DO $$
DECLARE
    name text;
    mine text := 'organization = ANY ((SELECT NULLIF(current_setting(''app.orgs'', true), '''')'
                 '::uuid[])::uuid[])';
BEGIN
    FOREACH name IN ARRAY ARRAY['budgets', 'open_holds', 'transfers', 'ledger_seals'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', name);
        EXECUTE format('CREATE POLICY functions_all ON %I TO sluice_ledger USING (true) '
                       'WITH CHECK (true)', name);
        EXECUTE format('CREATE POLICY owner_reads ON %I FOR SELECT TO CURRENT_USER USING (true)',
                       name);
        EXECUTE format('REVOKE ALL ON %I FROM PUBLIC, sluice_app, sluice_gateway', name);
        IF name <> 'ledger_seals' THEN
            EXECUTE format('CREATE POLICY tenant_reads ON %I FOR SELECT TO sluice_app USING (%s)',
                           name, mine);
            EXECUTE format('GRANT SELECT ON %I TO sluice_app', name);
        END IF;
    END LOOP;
    EXECUTE format('CREATE POLICY tenant_adds ON budgets FOR INSERT TO sluice_app '
                   'WITH CHECK (%s)', mine);
    EXECUTE format('CREATE POLICY tenant_limits ON budgets FOR UPDATE TO sluice_app USING (%s)',
                   mine);
END $$;
GRANT INSERT (id, organization, scope, lim), UPDATE (lim, over) ON budgets TO sluice_app;
-- Seals name no organization: a hash, a count and a total that jobs and pages may show.
CREATE POLICY anyone_reads ON ledger_seals FOR SELECT TO sluice_app USING (true);
GRANT SELECT ON ledger_seals TO sluice_app;

GRANT SELECT, INSERT, UPDATE ON budgets TO sluice_ledger;
GRANT SELECT, INSERT, UPDATE, DELETE ON open_holds TO sluice_ledger;
GRANT SELECT, INSERT ON transfers, ledger_seals TO sluice_ledger;
