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
REVOKE ALL ON hygiene_hours FROM PUBLIC, sluice_app, sluice_gateway;
GRANT SELECT ON hygiene_hours TO sluice_app;
GRANT SELECT, INSERT, UPDATE, DELETE ON hygiene_hours TO sluice_ledger;
GRANT SELECT, INSERT ON comparisons TO sluice_app;

-- A writer repeats the whole hour so far, so that a repeat after a lost answer changes nothing.
CREATE FUNCTION insights_hygiene_count(
    p_writer uuid, p_hour_s bigint[], p_ids text[], p_model text[], p_kind text[], p_figures text[]
) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    written integer;
BEGIN
    INSERT INTO hygiene_hours (hour, writer, organization, project, key, model, kind,
                               requests, tokens, nano)
    SELECT to_timestamp(h.hour_s), p_writer, i.ids[1], i.ids[2], i.ids[3], h.model, h.kind,
           n.f[1], n.f[2], n.f[3]
    FROM unnest(p_hour_s, p_ids, p_model, p_kind, p_figures)
             AS h(hour_s, ids, model, kind, figures),
         LATERAL (SELECT h.ids::uuid[] OFFSET 0) AS i(ids),
         LATERAL (SELECT h.figures::bigint[] OFFSET 0) AS n(f)
    ON CONFLICT (hour, organization, project, key, model, kind, writer)
        DO UPDATE SET requests = excluded.requests, tokens = excluded.tokens, nano = excluded.nano;
    GET DIAGNOSTICS written = ROW_COUNT;
    RETURN written;
END $$;

-- Removes at most `rows_max` counts of before `keep_from`; returns how many.
CREATE FUNCTION insights_hygiene_forget(keep_from timestamptz, rows_max integer) RETURNS bigint
LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp AS $$
    WITH gone AS (
        DELETE FROM hygiene_hours WHERE ctid IN (
            SELECT ctid FROM hygiene_hours WHERE hour < keep_from LIMIT rows_max)
        RETURNING 1
    ) SELECT count(*) FROM gone
$$;

GRANT CREATE ON SCHEMA public TO sluice_ledger;
ALTER FUNCTION insights_hygiene_count(uuid, bigint[], text[], text[], text[], text[])
    OWNER TO sluice_ledger;
ALTER FUNCTION insights_hygiene_forget(timestamptz, integer) OWNER TO sluice_ledger;
REVOKE CREATE ON SCHEMA public FROM sluice_ledger;
REVOKE ALL ON FUNCTION insights_hygiene_count(uuid, bigint[], text[], text[], text[], text[]),
    insights_hygiene_forget(timestamptz, integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION
    insights_hygiene_count(uuid, bigint[], text[], text[], text[], text[]) TO sluice_gateway;
GRANT EXECUTE ON FUNCTION insights_hygiene_forget(timestamptz, integer) TO sluice_app;
