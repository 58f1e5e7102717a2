-- Two functions tell jobs, across all organizations, which exports to go on with and which to remove.
CREATE OR REPLACE FUNCTION exports_due(rows_max integer) RETURNS TABLE (organization uuid, export uuid)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT e.organization_id, e.id FROM exports e
    WHERE e.state IN ('waiting', 'running')
      AND (e.claimed_until IS NULL OR e.claimed_until < now())
    ORDER BY e.id LIMIT rows_max
$$;

CREATE OR REPLACE FUNCTION exports_to_remove(keep_for interval, bytes_max bigint, rows_max integer)
RETURNS TABLE (organization uuid, export uuid)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT f.organization_id, f.id FROM (
        SELECT e.organization_id, e.id, e.finished_at,
               sum(e.bytes_done) OVER (ORDER BY e.finished_at DESC, e.id DESC) AS bytes
        FROM exports e WHERE e.state = 'done'
    ) AS f
    WHERE f.finished_at < now() - keep_for OR f.bytes > bytes_max
    ORDER BY f.finished_at LIMIT rows_max
$$;

GRANT EXECUTE ON FUNCTION exports_due, exports_to_remove TO sluice_app;
