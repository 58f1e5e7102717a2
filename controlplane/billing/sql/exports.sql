-- Exports are seen only in the scope of their organization; two functions tell jobs, across all of
-- them, which to go on with and which to remove.
ALTER TABLE exports ENABLE ROW LEVEL SECURITY;
ALTER TABLE exports FORCE ROW LEVEL SECURITY;
REVOKE ALL ON exports FROM PUBLIC, sluice_app, sluice_gateway;
CREATE POLICY functions_read ON exports FOR SELECT TO sluice_ledger USING (true);
CREATE POLICY export_tenant ON exports TO sluice_app USING (
    organization_id = ANY (
        (SELECT nullif(current_setting('app.orgs', true), '')::uuid[])::uuid[]
    )
);
-- Rows stay when their files go.
GRANT SELECT, INSERT, UPDATE ON exports TO sluice_app;
GRANT SELECT ON exports TO sluice_ledger;

CREATE FUNCTION exports_due(rows_max integer) RETURNS TABLE (organization uuid, export uuid)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT e.organization_id, e.id FROM exports e
    WHERE e.state IN ('waiting', 'running')
      AND (e.claimed_until IS NULL OR e.claimed_until < now())
    ORDER BY e.id LIMIT rows_max
$$;

CREATE FUNCTION exports_to_remove(keep_for interval, bytes_max bigint, rows_max integer)
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

REVOKE ALL ON FUNCTION exports_due(integer) FROM PUBLIC;
REVOKE ALL ON FUNCTION exports_to_remove(interval, bigint, integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION exports_due(integer) TO sluice_app;
GRANT EXECUTE ON FUNCTION exports_to_remove(interval, bigint, integer) TO sluice_app;
-- (Changing an owner needs CREATE on the schema for the new one, for that moment only.)
GRANT CREATE ON SCHEMA public TO sluice_ledger;
ALTER FUNCTION exports_due(integer) OWNER TO sluice_ledger;
ALTER FUNCTION exports_to_remove(interval, bigint, integer) OWNER TO sluice_ledger;
REVOKE CREATE ON SCHEMA public FROM sluice_ledger;
