-- What is due, oldest first, a few of each organization: nobody's many messages keep out those of others.
SET LOCAL check_function_bodies = off;
DROP FUNCTION slo_deliveries_due(integer);
CREATE FUNCTION slo_deliveries_due(rows_max integer, share_max integer)
RETURNS TABLE (organization uuid, delivery uuid)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT d.organization, d.id FROM (
        SELECT w.organization, w.id, w.due_at,
               row_number() OVER (PARTITION BY w.organization ORDER BY w.due_at) AS place
        FROM slo_deliveries w WHERE w.sent_at IS NULL AND w.due_at <= now()
    ) AS d
    WHERE d.place <= share_max ORDER BY d.place, d.due_at LIMIT rows_max
$$;

GRANT CREATE ON SCHEMA public TO sluice_ledger;
ALTER FUNCTION slo_deliveries_due(integer, integer) OWNER TO sluice_ledger;
REVOKE CREATE ON SCHEMA public FROM sluice_ledger;
REVOKE ALL ON FUNCTION slo_deliveries_due(integer, integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION slo_deliveries_due(integer, integer) TO sluice_app;
