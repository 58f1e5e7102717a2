-- Objectives and all that hangs on them are seen in the scope of their organization; gateways count
-- through a function, and know of objectives by the snapshot.

DO $$
DECLARE
    name text;
    mine text := 'organization = ANY ((SELECT NULLIF(current_setting(''app.orgs'', true), '''')'
                 '::uuid[])::uuid[])';
BEGIN
    FOREACH name IN ARRAY ARRAY['slo_objectives', 'slo_changes', 'slo_alerts', 'slo_channels',
                                'slo_deliveries', 'slo_counts', 'slo_holds'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', name);
        EXECUTE format('CREATE POLICY functions_all ON %I TO sluice_ledger USING (true) '
                       'WITH CHECK (true)', name);
        EXECUTE format('CREATE POLICY owner_reads ON %I FOR SELECT TO CURRENT_USER USING (true)',
                       name);
        EXECUTE format('CREATE POLICY tenant ON %I TO sluice_app USING (%s)', name, mine);
        EXECUTE format('GRANT SELECT ON %I TO sluice_app', name);
    END LOOP;
END $$;
GRANT INSERT, UPDATE ON slo_objectives, slo_alerts, slo_deliveries, slo_holds TO sluice_app;
GRANT INSERT ON slo_changes TO sluice_app;
GRANT INSERT, DELETE ON slo_channels TO sluice_app;
-- Deliveries go with the channel that they were for.
GRANT DELETE ON slo_deliveries TO sluice_app;
GRANT SELECT ON slo_objectives, slo_alerts, slo_deliveries, slo_holds TO sluice_ledger;
GRANT SELECT, INSERT, UPDATE, DELETE ON slo_counts TO sluice_ledger;
-- Everybody who is signed in may know who answers for a stage.
GRANT SELECT, INSERT, UPDATE ON slo_stage_owners TO sluice_app;

-- Gateways read objectives, and of holds what is kept out and how long at most.
CREATE CONSTRAINT TRIGGER objective_config AFTER INSERT OR UPDATE ON slo_objectives
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION config_changed();
CREATE CONSTRAINT TRIGGER hold_begins AFTER INSERT ON slo_holds
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION config_changed();
CREATE CONSTRAINT TRIGGER hold_changes AFTER UPDATE ON slo_holds
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (OLD.until <> NEW.until OR OLD.released_at IS DISTINCT FROM NEW.released_at)
    EXECUTE FUNCTION config_changed();
