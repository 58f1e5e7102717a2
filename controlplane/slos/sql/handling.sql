-- Silences are seen in the scope of their organization; who has which duty, by everybody signed in.
ALTER TABLE slo_silences ENABLE ROW LEVEL SECURITY;
ALTER TABLE slo_silences FORCE ROW LEVEL SECURITY;
CREATE POLICY owner_reads ON slo_silences FOR SELECT TO CURRENT_USER USING (true);
CREATE POLICY tenant ON slo_silences TO sluice_app USING (
    organization = ANY ((SELECT NULLIF(current_setting('app.orgs', true), '')::uuid[])::uuid[]));
GRANT SELECT, INSERT, UPDATE ON slo_silences TO sluice_app;
GRANT SELECT, INSERT, UPDATE, DELETE ON slo_duty_owners TO sluice_app;
