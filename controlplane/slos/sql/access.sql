-- Objectives and all that hangs on them are seen in the scope of their organization; gateways count
-- through a function, and know of objectives by the snapshot.

DO $$
DECLARE
    name text;
    mine text := 'organization = ANY ((SELECT NULLIF(current_setting(''app.orgs'', true), '''')'
                 '::uuid[])::uuid[])';
BEGIN
    FOREACH name IN ARRAY ARRAY['slo_objectives', 'slo_changes', 'slo_alerts', 'slo_channels',
                                'slo_deliveries', 'slo_counts'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', name);
        EXECUTE format('CREATE POLICY functions_all ON %I TO sluice_ledger USING (true) '
                       'WITH CHECK (true)', name);
        EXECUTE format('CREATE POLICY owner_reads ON %I FOR SELECT TO CURRENT_USER USING (true)',
                       name);
        EXECUTE format('CREATE POLICY tenant ON %I TO sluice_app USING (%s)', name, mine);
        EXECUTE format('REVOKE ALL ON %I FROM PUBLIC, sluice_app, sluice_gateway', name);
        EXECUTE format('GRANT SELECT ON %I TO sluice_app', name);
    END LOOP;
END $$;
GRANT INSERT, UPDATE ON slo_objectives, slo_alerts, slo_deliveries TO sluice_app;
GRANT INSERT ON slo_changes TO sluice_app;
GRANT INSERT, DELETE ON slo_channels TO sluice_app;
-- Deliveries go with the channel that they were for.
GRANT DELETE ON slo_deliveries TO sluice_app;
GRANT SELECT ON slo_objectives, slo_alerts, slo_deliveries TO sluice_ledger;
GRANT SELECT, INSERT, UPDATE, DELETE ON slo_counts TO sluice_ledger;
-- Everybody who is signed in may know who answers for a stage.
GRANT SELECT, INSERT, UPDATE ON slo_stage_owners TO sluice_app;

-- Gateways read objectives, and what is shed while an alert fires.
CREATE CONSTRAINT TRIGGER objective_config AFTER INSERT OR UPDATE ON slo_objectives
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION config_changed();
CREATE CONSTRAINT TRIGGER alert_config AFTER INSERT OR UPDATE OF state ON slo_alerts
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION config_changed();

GRANT CREATE ON SCHEMA public TO sluice_ledger;
DO $$
DECLARE
    called text;
BEGIN
    FOREACH called IN ARRAY ARRAY[
        'slo_count(uuid, bigint[], uuid[], integer[], bigint[], bigint[])',
        'slo_roll_up(integer, integer, timestamptz, interval)',
        'slo_forget(integer, timestamptz, integer)',
        'slo_organizations()', 'slo_deliveries_due(integer)'] LOOP
        EXECUTE format('ALTER FUNCTION %s OWNER TO sluice_ledger', called);
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', called);
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %I', called,
                       CASE WHEN called LIKE 'slo_count(%' THEN 'sluice_gateway'
                            ELSE 'sluice_app' END);
    END LOOP;
END $$;
REVOKE CREATE ON SCHEMA public FROM sluice_ledger;
