-- A writer repeats the whole hour so far, so that a repeat after a lost answer changes nothing. Of
-- `p_ids` each has organization, project, key and client.
CREATE OR REPLACE FUNCTION insights_hygiene_count(
    p_writer uuid, p_hour_s bigint[], p_ids text[], p_model text[], p_kind text[], p_figures text[]
) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    written integer;
BEGIN
    INSERT INTO hygiene_hours (hour, writer, organization, project, key, client, model, kind,
                               requests, tokens, nano)
    SELECT to_timestamp(h.hour_s), p_writer, i.ids[1]::uuid, i.ids[2]::uuid, i.ids[3]::uuid,
           coalesce(i.ids[4], 'other'), h.model, h.kind, n.f[1], n.f[2], n.f[3]
    FROM unnest(p_hour_s, p_ids, p_model, p_kind, p_figures)
             AS h(hour_s, ids, model, kind, figures),
         LATERAL (SELECT h.ids::text[] OFFSET 0) AS i(ids),
         LATERAL (SELECT h.figures::bigint[] OFFSET 0) AS n(f)
    ON CONFLICT (hour, organization, project, key, client, model, kind, writer)
        DO UPDATE SET requests = excluded.requests, tokens = excluded.tokens, nano = excluded.nano;
    GET DIAGNOSTICS written = ROW_COUNT;
    RETURN written;
END $$;

-- Removes at most `rows_max` counts of before `keep_from`; returns how many.
CREATE OR REPLACE FUNCTION insights_hygiene_forget(keep_from timestamptz, rows_max integer)
RETURNS bigint
LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp AS $$
    WITH gone AS (
        DELETE FROM hygiene_hours WHERE ctid IN (
            SELECT ctid FROM hygiene_hours WHERE hour < keep_from LIMIT rows_max)
        RETURNING 1
    ) SELECT count(*) FROM gone
$$;

GRANT EXECUTE ON FUNCTION insights_hygiene_count TO sluice_gateway;
GRANT EXECUTE ON FUNCTION insights_hygiene_forget TO sluice_app;
