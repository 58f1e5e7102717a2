-- Waste by key and hour, written by gateways; and comparisons, of the whole installation.

CREATE TABLE hygiene_hours (
    hour timestamptz NOT NULL,
    writer uuid NOT NULL,
    organization uuid NOT NULL,
    project uuid NOT NULL,
    key uuid NOT NULL,
    model text NOT NULL,
    kind text NOT NULL CHECK (kind IN ('looked', 'left_out', 'dead_json', 'oversized_prompt',
                                       'volatile_prefix', 'unbounded_output', 'retry')),
    requests bigint NOT NULL CHECK (requests >= 0),
    tokens bigint NOT NULL CHECK (tokens >= 0),
    nano bigint NOT NULL CHECK (nano >= 0),
    PRIMARY KEY (hour, organization, project, key, model, kind, writer)
);
CREATE INDEX hygiene_hours_of ON hygiene_hours (organization, hour);
ALTER TABLE hygiene_hours ENABLE ROW LEVEL SECURITY;
ALTER TABLE hygiene_hours FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant_reads ON hygiene_hours FOR SELECT TO sluice_app USING (
    organization = ANY ((SELECT NULLIF(current_setting('app.orgs', true), '')::uuid[])::uuid[]));
CREATE POLICY functions_all ON hygiene_hours TO sluice_ledger USING (true) WITH CHECK (true);
GRANT SELECT ON hygiene_hours TO sluice_app;
GRANT SELECT, INSERT, UPDATE, DELETE ON hygiene_hours TO sluice_ledger;
GRANT SELECT, INSERT ON comparisons TO sluice_app;
