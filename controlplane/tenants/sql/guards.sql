-- What constraints of the ORM cannot say: a key belongs to its project's organization, rows are seen
-- only in the scope of their organization, and a change here is news to every gateway.
ALTER TABLE api_keys ADD CONSTRAINT api_key_in_projects_organization
    FOREIGN KEY (project_id, organization_id) REFERENCES projects (id, organization_id);
ALTER TABLE api_keys ADD CONSTRAINT api_key_digest_length CHECK (octet_length(digest) = 32);

ALTER TABLE projects ENABLE ROW LEVEL SECURITY;
ALTER TABLE projects FORCE ROW LEVEL SECURITY;
ALTER TABLE api_keys ENABLE ROW LEVEL SECURITY;
ALTER TABLE api_keys FORCE ROW LEVEL SECURITY;

CREATE POLICY project_tenant ON projects TO sluice_app USING (
    organization_id = ANY (
        (SELECT nullif(current_setting('app.orgs', true), '')::uuid[])::uuid[]
    )
);
CREATE POLICY api_key_tenant ON api_keys TO sluice_app USING (
    organization_id = ANY (
        (SELECT nullif(current_setting('app.orgs', true), '')::uuid[])::uuid[]
    )
);
-- The functions that gateways may call run as this role and read every tenant's rows.
CREATE POLICY project_gateway ON projects FOR SELECT TO sluice_ledger USING (true);
CREATE POLICY api_key_gateway ON api_keys FOR SELECT TO sluice_ledger USING (true);

-- Nothing is deleted: a key that is gone must still be nameable on the ledger.
GRANT SELECT, INSERT, UPDATE ON organizations, projects, api_keys TO sluice_app;
GRANT SELECT ON projects, api_keys TO sluice_ledger;

CREATE CONSTRAINT TRIGGER project_config AFTER INSERT OR UPDATE ON projects
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION config_changed();
CREATE CONSTRAINT TRIGGER api_key_config AFTER INSERT OR UPDATE ON api_keys
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION config_changed();
