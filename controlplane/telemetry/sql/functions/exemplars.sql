-- `p_ids` are organization, project and request; `p_figures` minute (Unix time), octave and value.
CREATE OR REPLACE FUNCTION telemetry_exemplars(
    p_ids text[], p_measure text[], p_model text[], p_figures text[]
) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    written integer;
BEGIN
    INSERT INTO exemplars (organization, project, measure, model, octave, at, value_us, request)
    SELECT i.ids[1], i.ids[2], e.measure, e.model, n.f[2],
           to_timestamp(n.f[1] - n.f[1] % 300), n.f[3], i.ids[3]
    FROM unnest(p_ids, p_measure, p_model, p_figures) AS e(ids, measure, model, figures),
         LATERAL (SELECT e.ids::uuid[] OFFSET 0) AS i(ids),
         LATERAL (SELECT e.figures::bigint[] OFFSET 0) AS n(f)
    ON CONFLICT (organization, measure, at, octave, project, model)
        DO UPDATE SET value_us = excluded.value_us, request = excluded.request;
    GET DIAGNOSTICS written = ROW_COUNT;
    RETURN written;
END $$;

-- Deletes at most `rows_max` rows that are older than `keep_from`.
CREATE OR REPLACE FUNCTION telemetry_drop_exemplars(keep_from timestamptz, rows_max integer)
RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    dropped integer;
BEGIN
    DELETE FROM exemplars WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM exemplars WHERE at < keep_from LIMIT rows_max));
    GET DIAGNOSTICS dropped = ROW_COUNT;
    RETURN dropped;
END $$;

GRANT EXECUTE ON FUNCTION telemetry_exemplars TO sluice_gateway;
GRANT EXECUTE ON FUNCTION telemetry_drop_exemplars TO sluice_app;
