-- Closes at work are seen only in the scope of their organization.
ALTER TABLE period_close_jobs ENABLE ROW LEVEL SECURITY;
ALTER TABLE period_close_jobs FORCE ROW LEVEL SECURITY;
REVOKE ALL ON period_close_jobs FROM PUBLIC, sluice_app, sluice_gateway;
CREATE POLICY close_job_tenant ON period_close_jobs TO sluice_app USING (
    organization = ANY ((SELECT NULLIF(current_setting('app.orgs', true), '')::uuid[])::uuid[])
);
GRANT SELECT, INSERT, UPDATE ON period_close_jobs TO sluice_app;
