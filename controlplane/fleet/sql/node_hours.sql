-- What a node costs while it is there: gateways' reports add up its time by the hour.
GRANT SELECT ON node_hours TO sluice_app;
GRANT SELECT, INSERT, UPDATE ON node_hours TO sluice_ledger;
ALTER TABLE node_hours ADD CONSTRAINT node_hours_bounds
    CHECK (up_ms BETWEEN 0 AND 3600000 AND busy_ms BETWEEN 0 AND up_ms);

-- One gateway's whole view at once: its links ({node, facts}) and how many requests wait, by model.
-- A node's own row is touched at most every 30 seconds: it is wide, logged, and of a thousand nodes;
-- who wants to know it to the second reads the links. At each touch the time since the one before is
-- added to the node's hours, unless it was away meanwhile: only one gateway's touch counts.
CREATE OR REPLACE FUNCTION fleet_links(me text, links jsonb, waits jsonb)
RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    INSERT INTO node_links (node_id, gateway, facts, seen_at)
    SELECT l.node::uuid, me, l.facts, now()
    FROM jsonb_to_recordset(links) AS l (node text, facts jsonb)
    JOIN nodes n ON n.id = l.node::uuid
    ON CONFLICT (node_id, gateway) DO UPDATE SET facts = EXCLUDED.facts, seen_at = now();
    WITH due AS (
        SELECT n.id, n.last_seen_at AS before FROM nodes n
        WHERE n.id IN (SELECT l.node::uuid FROM jsonb_to_recordset(links) AS l (node text))
            AND coalesce(n.last_seen_at, '-infinity') < now() - interval '30 seconds'
        ORDER BY n.id FOR UPDATE
    ), touched AS (
        UPDATE nodes n SET last_seen_at = now() FROM due WHERE n.id = due.id
        RETURNING n.id, n.pool, due.before
    ), pieces AS (
        SELECT t.id, t.pool, h.hour, (1000 * extract(epoch FROM
                least(now(), h.hour + interval '1 hour') - greatest(t.before, h.hour)))::bigint AS ms,
            EXISTS (SELECT 1 FROM node_links k WHERE k.node_id = t.id
                    AND k.seen_at > now() - interval '10 seconds'
                    AND coalesce((k.facts ->> 'active')::bigint, 0) > 0) AS busy
        FROM touched t, generate_series(date_trunc('hour', t.before, 'UTC'), now(),
                                        interval '1 hour') AS h (hour)
        WHERE t.before > now() - interval '2 minutes'
    )
    INSERT INTO node_hours AS kept (hour, node, pool, card_hour_micro, cards_per_node, up_ms, busy_ms)
    SELECT p.hour, p.id, p.pool, c.card_hour_micro, c.cards_per_node, p.ms,
           CASE WHEN p.busy THEN p.ms ELSE 0 END
    FROM pieces p JOIN pools c ON c.name = p.pool WHERE p.ms > 0
    ON CONFLICT (hour, node, pool, card_hour_micro, cards_per_node) DO UPDATE SET
        up_ms = least(3600000, kept.up_ms + EXCLUDED.up_ms),
        busy_ms = least(3600000, kept.busy_ms + EXCLUDED.busy_ms);
    DELETE FROM node_links WHERE (gateway = me AND seen_at < now())
        OR seen_at < now() - interval '1 minute';
    INSERT INTO gateway_queues (gateway, waiting, seen_at) VALUES (me, waits, now())
    ON CONFLICT (gateway) DO UPDATE SET waiting = waits, seen_at = now();
    DELETE FROM gateway_queues WHERE seen_at < now() - interval '1 minute';
END
$$;
