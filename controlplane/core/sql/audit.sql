-- Audit rows are added and read, never changed; the policy shows an organization only its own. Each
-- row is chained by hash to the one before it, by a job: writers wait for nobody.
CREATE TRIGGER audit_append_only BEFORE UPDATE OR DELETE ON audit_entries
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER audit_no_truncate BEFORE TRUNCATE ON audit_entries
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE TRIGGER audit_time BEFORE INSERT ON audit_entries
    FOR EACH ROW EXECUTE FUNCTION audit_time();
CREATE TRIGGER audit_append_only BEFORE UPDATE OR DELETE ON audit_links
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER audit_no_truncate BEFORE TRUNCATE ON audit_links
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

ALTER TABLE audit_entries ENABLE ROW LEVEL SECURITY;
ALTER TABLE audit_entries FORCE ROW LEVEL SECURITY;
-- What concerns no organization is read in the scope of the installation: the zero id.
CREATE POLICY audit_read ON audit_entries FOR SELECT TO sluice_app USING (
    coalesce(organization_id, '00000000-0000-0000-0000-000000000000') = ANY (
        (SELECT nullif(current_setting('app.orgs', true), '')::uuid[])::uuid[]
    )
);
CREATE POLICY audit_add ON audit_entries FOR INSERT TO sluice_app WITH CHECK (true);
CREATE POLICY audit_chained ON audit_entries FOR SELECT TO sluice_ledger USING (true);
CREATE POLICY owner_reads ON audit_entries FOR SELECT TO CURRENT_USER USING (true);
GRANT SELECT, INSERT ON audit_entries TO sluice_app;
GRANT SELECT ON audit_entries TO sluice_ledger;
-- Links name no organization: ids and hashes.
GRANT SELECT ON audit_links TO sluice_app;
GRANT SELECT, INSERT ON audit_links TO sluice_ledger;
