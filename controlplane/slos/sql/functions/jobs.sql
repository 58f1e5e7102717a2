-- Jobs go through organizations one by one, each in its scope.
CREATE OR REPLACE FUNCTION slo_organizations() RETURNS SETOF uuid
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT DISTINCT o.organization FROM slo_objectives o
    WHERE o.ended_at IS NULL
       OR EXISTS (SELECT 1 FROM slo_alerts a WHERE a.objective_id = o.id AND a.state = 'firing')
       OR EXISTS (SELECT 1 FROM slo_holds h WHERE h.objective_id = o.id AND h.released_at IS NULL)
$$;

-- What is due, oldest first, a few of each organization: nobody's many messages keep out those of
-- others.
CREATE OR REPLACE FUNCTION slo_deliveries_due(rows_max integer, share_max integer)
RETURNS TABLE (organization uuid, delivery uuid)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT d.organization, d.id FROM (
        SELECT w.organization, w.id, w.due_at,
               row_number() OVER (PARTITION BY w.organization ORDER BY w.due_at) AS place
        FROM slo_deliveries w WHERE w.sent_at IS NULL AND w.due_at <= now()
    ) AS d
    WHERE d.place <= share_max ORDER BY d.place, d.due_at LIMIT rows_max
$$;

GRANT EXECUTE ON FUNCTION slo_organizations, slo_deliveries_due TO sluice_app;
