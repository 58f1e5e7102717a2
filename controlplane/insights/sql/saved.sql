-- Saved views are seen in the scope of their organization; `saved.py` says by whom.
ALTER TABLE saved_views ENABLE ROW LEVEL SECURITY;
ALTER TABLE saved_views FORCE ROW LEVEL SECURITY;
CREATE POLICY owner_reads ON saved_views FOR SELECT TO CURRENT_USER USING (true);
CREATE POLICY tenant ON saved_views TO sluice_app USING (
    organization = ANY ((SELECT NULLIF(current_setting('app.orgs', true), '')::uuid[])::uuid[]));
GRANT SELECT, INSERT, UPDATE, DELETE ON saved_views TO sluice_app;
