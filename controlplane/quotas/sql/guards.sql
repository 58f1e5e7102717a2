-- Limits are seen in the scope of their organization; a change is news to every gateway.
ALTER TABLE rate_limits ENABLE ROW LEVEL SECURITY;
ALTER TABLE rate_limits FORCE ROW LEVEL SECURITY;
CREATE POLICY rate_limit_tenant ON rate_limits TO sluice_app USING (
    organization_id = ANY (
        (SELECT nullif(current_setting('app.orgs', true), '')::uuid[])::uuid[]
    )
);
CREATE POLICY rate_limit_gateway ON rate_limits FOR SELECT TO sluice_ledger USING (true);
GRANT SELECT, INSERT, UPDATE, DELETE ON rate_limits TO sluice_app;
GRANT SELECT ON rate_limits TO sluice_ledger;

CREATE CONSTRAINT TRIGGER rate_limit_config AFTER INSERT OR UPDATE OR DELETE ON rate_limits
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION config_changed();
