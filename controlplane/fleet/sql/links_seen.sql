-- As in node_lives.sql, but a node's own row is touched at most every 30 seconds: it is wide, logged,
-- and of a thousand nodes; who wants to know it to the second reads the links.
CREATE OR REPLACE FUNCTION fleet_links(me text, links jsonb, waits jsonb)
RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    INSERT INTO node_links (node_id, gateway, facts, seen_at)
    SELECT l.node::uuid, me, l.facts, now()
    FROM jsonb_to_recordset(links) AS l (node text, facts jsonb)
    JOIN nodes n ON n.id = l.node::uuid
    ON CONFLICT (node_id, gateway) DO UPDATE SET facts = EXCLUDED.facts, seen_at = now();
    UPDATE nodes SET last_seen_at = now()
    WHERE id IN (SELECT l.node::uuid FROM jsonb_to_recordset(links) AS l (node text))
        AND coalesce(last_seen_at, '-infinity') < now() - interval '30 seconds';
    DELETE FROM node_links WHERE (gateway = me AND seen_at < now())
        OR seen_at < now() - interval '1 minute';
    INSERT INTO gateway_queues (gateway, waiting, seen_at) VALUES (me, waits, now())
    ON CONFLICT (gateway) DO UPDATE SET waiting = waits, seen_at = now();
    DELETE FROM gateway_queues WHERE seen_at < now() - interval '1 minute';
END
$$;
