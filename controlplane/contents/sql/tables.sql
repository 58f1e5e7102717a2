-- What was said: written by the functions alone, read and deleted in the scope of its organization.

CREATE TABLE kept_contents (
    request uuid PRIMARY KEY,
    organization uuid NOT NULL,
    project uuid NOT NULL REFERENCES projects ON DELETE CASCADE,
    terms bigint[] NOT NULL,
    sealed bytea NOT NULL
);
-- It is compressed before it is sealed, and nothing makes it smaller afterwards.
ALTER TABLE kept_contents ALTER COLUMN sealed SET STORAGE EXTERNAL;
CREATE INDEX kept_contents_newest ON kept_contents (project, request DESC);
CREATE INDEX kept_contents_terms ON kept_contents USING gin (terms);
ALTER TABLE kept_contents ENABLE ROW LEVEL SECURITY;
ALTER TABLE kept_contents FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant_reads ON kept_contents TO sluice_app USING (
    organization = ANY ((SELECT NULLIF(current_setting('app.orgs', true), '')::uuid[])::uuid[]));
CREATE POLICY functions_all ON kept_contents TO sluice_ledger USING (true) WITH CHECK (true);
GRANT SELECT, DELETE ON kept_contents TO sluice_app;
GRANT SELECT, INSERT, UPDATE, DELETE ON kept_contents TO sluice_ledger;
