-- The gateway's writes: request rows, and cumulative histograms and usage of one writer's minutes.
-- All arrays of a call have one length; blobs travel as hex, which needs no quoting. OFFSET 0 keeps
-- the planner from splitting a text once for every field taken from it.

CREATE OR REPLACE FUNCTION telemetry_record(
    p_request uuid[], p_started_us bigint[], p_ids text[], p_numbers text[], p_words text[],
    p_spans text[], p_receipt text[]
) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    written integer;
BEGIN
    INSERT INTO request_records (
        request, organization, project, key, started_at, cost_nano, total_us, ttft_us,
        prompt_tokens, cached_tokens, output_tokens, status, stream,
        model, route, node, pool, region, operation, error_code, finish, safety, spans, receipt,
        end_user)
    SELECT r.request, i.ids[1], i.ids[2], i.ids[3],
           to_timestamp(0) + r.started_us * interval '1 microsecond',
           n.figures[1], n.figures[2], n.figures[3], n.figures[4], n.figures[5], n.figures[6],
           n.figures[7], n.figures[8] = 1,
           w.words[1], w.words[2], w.words[3], w.words[4], w.words[5], w.words[6], w.words[7],
           w.words[8], w.words[9], decode(r.spans, 'hex'), decode(r.receipt, 'hex'),
           coalesce(w.words[10], '')
    FROM unnest(p_request, p_started_us, p_ids, p_numbers, p_words, p_spans, p_receipt)
             AS r(request, started_us, ids, figures, words, spans, receipt),
         LATERAL (SELECT r.ids::uuid[] OFFSET 0) AS i(ids),
         LATERAL (SELECT r.figures::bigint[] OFFSET 0) AS n(figures),
         LATERAL (SELECT string_to_array(r.words, chr(31)) OFFSET 0) AS w(words)
    ORDER BY r.request
    ON CONFLICT (request) DO NOTHING;
    GET DIAGNOSTICS written = ROW_COUNT;
    RETURN written;
END $$;

-- What readers think of an answer of their project: 1, -1, or 0 for nothing. The last word stands;
-- nothing is returned where the project has no such request.
CREATE OR REPLACE FUNCTION telemetry_rate(
    p_project uuid, p_request uuid, p_rating smallint, p_comment text
) RETURNS TABLE (receipt bytea, changed boolean)
LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp AS $$
    WITH was AS (
        SELECT r.request, r.receipt, r.rating FROM request_records r
        WHERE r.request = p_request AND r.project = p_project FOR UPDATE
    ), done AS (
        UPDATE request_records r SET rating = p_rating, comment = p_comment FROM was
        WHERE r.request = p_request AND r.request = was.request
    ) SELECT was.receipt, was.rating <> p_rating FROM was
$$;

-- A writer repeats the whole minute so far, so that a repeat after a lost answer changes nothing.
-- `p_names` are model, route, pool and region.
CREATE OR REPLACE FUNCTION telemetry_merge(
    p_writer uuid, p_minute_s bigint[], p_organization uuid[], p_project uuid[], p_measure text[],
    p_names text[], p_bucket smallint[], p_status smallint[], p_data text[]
) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    written integer;
BEGIN
    INSERT INTO histogram_minutes (minute, writer, organization, project, measure, model, route,
                                   pool, region, prompt_bucket, status_class, data)
    SELECT to_timestamp(s.minute_s), p_writer, s.organization, s.project, s.measure,
           n.words[1], n.words[2], n.words[3], n.words[4], s.bucket, s.status, decode(s.data, 'hex')
    FROM unnest(p_minute_s, p_organization, p_project, p_measure, p_names, p_bucket, p_status,
                p_data)
             AS s(minute_s, organization, project, measure, names, bucket, status, data),
         LATERAL (SELECT string_to_array(s.names, chr(31)) OFFSET 0) AS n(words)
    ON CONFLICT (organization, project, measure, dimension, minute, model, route, pool, region,
                 prompt_bucket, status_class, writer)
        DO UPDATE SET data = excluded.data;
    GET DIAGNOSTICS written = ROW_COUNT;
    RETURN written;
END $$;

CREATE OR REPLACE FUNCTION telemetry_count(
    p_writer uuid, p_minute_s bigint[], p_organization uuid[], p_project uuid[], p_key uuid[],
    p_model text[], p_route text[], p_pool text[], p_figures text[]
) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    written integer;
BEGIN
    INSERT INTO usage_minutes (minute, writer, organization, project, key, model, route, pool,
                               requests, errors, gone, uncached, cached, output, nano,
                               available, captured)
    SELECT to_timestamp(u.minute_s), p_writer, u.organization, u.project, u.key, u.model, u.route,
           u.pool, n.f[1], n.f[2], n.f[3], n.f[4], n.f[5], n.f[6], n.f[7], n.f[8], n.f[9]
    FROM unnest(p_minute_s, p_organization, p_project, p_key, p_model, p_route, p_pool, p_figures)
             AS u(minute_s, organization, project, key, model, route, pool, figures),
         LATERAL (SELECT u.figures::bigint[] OFFSET 0) AS n(f)
    ON CONFLICT (minute, organization, project, key, model, route, pool, writer)
        DO UPDATE SET requests = excluded.requests, errors = excluded.errors,
                      gone = excluded.gone, uncached = excluded.uncached,
                      cached = excluded.cached, output = excluded.output, nano = excluded.nano,
                      available = excluded.available, captured = excluded.captured;
    GET DIAGNOSTICS written = ROW_COUNT;
    RETURN written;
END $$;

GRANT EXECUTE ON FUNCTION telemetry_record, telemetry_merge, telemetry_count, telemetry_rate
    TO sluice_gateway;
