-- Roll-ups: minutes into 5 minutes, these into hours, these into quarters of a day, these into days.
-- Histograms are merged in Python between `read` and `write`; usage is summed here. A window may be
-- rolled up any number of times. `source_s` is the step read: 60 or one of the roll-ups'. Windows are
-- found by their histograms, since gauges are sampled while nobody asks for anything.

CREATE OR REPLACE FUNCTION telemetry_rollup_next(source_s integer, since timestamptz) RETURNS timestamptz
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT CASE source_s
        WHEN 60 THEN (SELECT min(minute) FROM histogram_minutes WHERE minute >= since)
        ELSE (SELECT min(at) FROM histogram_rollups WHERE step_s = source_s AND at >= since)
    END
$$;

CREATE OR REPLACE FUNCTION telemetry_rollup_last(step integer) RETURNS timestamptz
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT max(at) FROM histogram_rollups WHERE step_s = step
$$;

CREATE OR REPLACE FUNCTION telemetry_rollup_read(source_s integer, opens timestamptz, closes timestamptz)
RETURNS TABLE (organization uuid, project uuid, measure text, model text, route text, pool text,
               region text, prompt_bucket smallint, status_class smallint, data bytea)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    IF source_s = 60 THEN
        RETURN QUERY SELECT h.organization, h.project, h.measure, h.model, h.route, h.pool,
                            h.region, h.prompt_bucket, h.status_class, h.data
                     FROM histogram_minutes h WHERE h.minute >= opens AND h.minute < closes;
    ELSE
        RETURN QUERY SELECT h.organization, h.project, h.measure, h.model, h.route, h.pool,
                            h.region, h.prompt_bucket, h.status_class, h.data
                     FROM histogram_rollups h
                     WHERE h.step_s = source_s AND h.at >= opens AND h.at < closes;
    END IF;
END $$;

CREATE OR REPLACE FUNCTION telemetry_rollup_write(
    step integer, opens timestamptz, p_organization uuid[], p_project uuid[], p_measure text[],
    p_model text[], p_route text[], p_pool text[], p_region text[], p_bucket smallint[],
    p_status smallint[], p_data bytea[]
) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    written integer;
BEGIN
    INSERT INTO histogram_rollups (step_s, at, organization, project, measure, model, route, pool,
                                   region, prompt_bucket, status_class, data)
    SELECT step, opens, s.* FROM unnest(p_organization, p_project, p_measure, p_model, p_route,
                                        p_pool, p_region, p_bucket, p_status, p_data) AS s
    ON CONFLICT (organization, project, measure, dimension, step_s, at, model, route, pool, region,
                 prompt_bucket, status_class)
        DO UPDATE SET data = excluded.data;
    GET DIAGNOSTICS written = ROW_COUNT;
    RETURN written;
END $$;

CREATE OR REPLACE FUNCTION telemetry_rollup_usage(
    source_s integer, step integer, opens timestamptz, closes timestamptz
) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    written integer;
BEGIN
    INSERT INTO usage_rollups AS r (step_s, at, organization, project, key, model, route, pool,
                                    requests, errors, gone, uncached, cached, output, nano,
                                    available, captured)
    SELECT step, opens, u.organization, u.project, u.key, u.model, u.route, u.pool,
           sum(u.requests), sum(u.errors), sum(u.gone), sum(u.uncached), sum(u.cached),
           sum(u.output), sum(u.nano),
           sum(u.available), sum(u.captured)
    FROM (
        SELECT organization, project, key, model, route, pool, requests, errors, gone, uncached,
               cached, output, nano, available, captured
        FROM usage_minutes WHERE source_s = 60 AND minute >= opens AND minute < closes
        UNION ALL
        SELECT organization, project, key, model, route, pool, requests, errors, gone, uncached,
               cached, output, nano, available, captured
        FROM usage_rollups WHERE step_s = source_s AND at >= opens AND at < closes
    ) AS u
    GROUP BY u.organization, u.project, u.key, u.model, u.route, u.pool
    ON CONFLICT (step_s, at, organization, project, key, model, route, pool)
        DO UPDATE SET requests = excluded.requests, errors = excluded.errors,
                      gone = excluded.gone, uncached = excluded.uncached,
                      cached = excluded.cached, output = excluded.output, nano = excluded.nano,
                      available = excluded.available, captured = excluded.captured;
    GET DIAGNOSTICS written = ROW_COUNT;
    RETURN written;
END $$;

-- Deletes at most `rows_max` rows of each kind that are older than `keep_from`.
CREATE OR REPLACE FUNCTION telemetry_drop_rollups(step integer, keep_from timestamptz, rows_max integer)
RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    usage_rows integer;
    histogram_rows integer;
BEGIN
    DELETE FROM usage_rollups WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM usage_rollups WHERE step_s = step AND at < keep_from LIMIT rows_max));
    GET DIAGNOSTICS usage_rows = ROW_COUNT;
    DELETE FROM histogram_rollups WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM histogram_rollups WHERE step_s = step AND at < keep_from LIMIT rows_max));
    GET DIAGNOSTICS histogram_rows = ROW_COUNT;
    RETURN usage_rows + histogram_rows;
END $$;

GRANT EXECUTE ON FUNCTION
    telemetry_rollup_next, telemetry_rollup_last, telemetry_rollup_read, telemetry_rollup_write,
    telemetry_rollup_usage, telemetry_drop_rollups TO sluice_app;
