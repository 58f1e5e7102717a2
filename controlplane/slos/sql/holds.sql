-- Priorities that objectives keep out. Gateways read of these alone what is kept out and how long
-- at most, so alerts no longer make them read the configuration again.
ALTER TABLE slo_holds ENABLE ROW LEVEL SECURITY;
ALTER TABLE slo_holds FORCE ROW LEVEL SECURITY;
CREATE POLICY functions_all ON slo_holds TO sluice_ledger USING (true) WITH CHECK (true);
CREATE POLICY owner_reads ON slo_holds FOR SELECT TO CURRENT_USER USING (true);
CREATE POLICY tenant ON slo_holds TO sluice_app
    USING (organization = ANY ((SELECT NULLIF(current_setting('app.orgs', true), '')::uuid[])::uuid[]));
REVOKE ALL ON slo_holds FROM PUBLIC, sluice_app, sluice_gateway;
GRANT SELECT, INSERT, UPDATE ON slo_holds TO sluice_app;
GRANT SELECT ON slo_holds TO sluice_ledger;

DROP TRIGGER alert_config ON slo_alerts;
CREATE CONSTRAINT TRIGGER hold_begins AFTER INSERT ON slo_holds
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION config_changed();
CREATE CONSTRAINT TRIGGER hold_changes AFTER UPDATE ON slo_holds
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (OLD.until <> NEW.until OR OLD.released_at IS DISTINCT FROM NEW.released_at)
    EXECUTE FUNCTION config_changed();

-- Jobs go through organizations one by one, each in its scope.
CREATE OR REPLACE FUNCTION slo_organizations() RETURNS SETOF uuid
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT DISTINCT o.organization FROM slo_objectives o
    WHERE o.ended_at IS NULL
       OR EXISTS (SELECT 1 FROM slo_alerts a WHERE a.objective_id = o.id AND a.state = 'firing')
       OR EXISTS (SELECT 1 FROM slo_holds h WHERE h.objective_id = o.id AND h.released_at IS NULL)
$$;
