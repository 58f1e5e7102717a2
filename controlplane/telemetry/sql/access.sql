-- Who may see what: tenants their own rows and global series, the functions' role everything,
-- the gateway nothing. Nobody is ever granted a partition.

DO $$
DECLARE
    name text;
    mine text := 'organization = ANY ((SELECT NULLIF(current_setting(''app.orgs'', true), '''')'
                 '::uuid[])::uuid[])';
    shared text := ' OR organization = ''00000000-0000-0000-0000-000000000000''';
BEGIN
    FOREACH name IN ARRAY ARRAY['request_records', 'histogram_minutes', 'histogram_rollups',
                                'usage_minutes', 'usage_rollups', 'exemplars'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', name);
        EXECUTE format('CREATE POLICY tenant_reads ON %I FOR SELECT TO sluice_app USING (%s)', name,
                       CASE WHEN name LIKE 'histogram%' THEN mine || shared ELSE mine END);
        EXECUTE format('CREATE POLICY functions_all ON %I TO sluice_ledger USING (true) '
                       'WITH CHECK (true)', name);
        EXECUTE format('CREATE POLICY owner_reads ON %I FOR SELECT TO CURRENT_USER USING (true)',
                       name);
        EXECUTE format('GRANT SELECT ON %I TO sluice_app', name);
        EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON %I TO sluice_ledger', name);
    END LOOP;
END $$;
GRANT SELECT, INSERT, UPDATE, DELETE ON rollup_retries TO sluice_app;
