-- How many other requests of a node overlapped with one in time, whoever's they were, of how many
-- other organizations, and the longest of those that the caller may see. Ids are times: what began
-- more than ten minutes before it is not looked for.
CREATE OR REPLACE FUNCTION telemetry_sharing(asked uuid, longest_max integer)
RETURNS TABLE (requests bigint, organizations bigint, longest uuid[])
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    WITH mine AS (
        SELECT NULLIF(current_setting('app.orgs', true), '')::uuid[] AS orgs
    ), shared AS (
        SELECT o.request, o.organization, o.total_us, r.organization AS whose
        FROM request_records r JOIN request_records o ON o.node = r.node
            AND o.request <> r.request
            AND o.request >= request_floor(r.started_at - interval '10 minutes')
            AND o.request < request_floor(r.started_at + r.total_us * interval '1 microsecond')
            AND o.started_at + o.total_us * interval '1 microsecond' > r.started_at
        WHERE r.request = asked AND r.node <> '' AND r.organization = ANY ((SELECT orgs FROM mine)::uuid[])
    )
    SELECT count(*), count(DISTINCT organization) FILTER (WHERE organization <> whose),
        ARRAY(SELECT request FROM shared WHERE organization = ANY ((SELECT orgs FROM mine)::uuid[])
              ORDER BY total_us DESC, request LIMIT longest_max)
    FROM shared
$$;
GRANT EXECUTE ON FUNCTION telemetry_sharing TO sluice_app;
