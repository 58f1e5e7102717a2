-- All that a gateway may ask or tell about nodes.

-- What is known of credentials, and what each node's pool demands of its prefix cache. The digest
-- is compared by the gateway, in constant time and under a pepper that is not here.
-- One key id at a handshake; those of all live links again and again, so that a revoked one is cut
-- and every gateway hears what staff have decided about a node.
CREATE OR REPLACE FUNCTION fleet_credentials(asked text[])
RETURNS TABLE (key_id text, node text, name text, pool text, digest bytea, models text[],
               standing text, drain_s double precision, quarantined boolean,
               separate_caches boolean)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT c.key_id::text, replace(n.id::text, '-', ''), n.name::text, n.pool::text, c.digest,
           c.allowed_models::text[], n.standing::text,
           greatest(0, coalesce(extract(epoch FROM n.drain_until - now()), 0))::double precision,
           coalesce(n.quarantined_until > now(), false), p.separate_caches
    FROM node_credentials c JOIN nodes n ON n.id = c.node_id JOIN pools p ON p.name = n.pool
    WHERE c.key_id = ANY (asked) AND c.revoked_at IS NULL AND n.standing <> 'removed'
$$;

-- Digests that an admitted node offers wait for staff. With `trust_first` the first one that is
-- ever offered for a model is approved; the lock makes that one. The bound keeps a node that
-- invents digests from filling the table.
CREATE OR REPLACE FUNCTION fleet_offers(offering text, offers jsonb, trust_first boolean)
RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    IF NOT EXISTS (
        SELECT 1 FROM jsonb_to_recordset(offers) AS o (model text, digest text)
        LEFT JOIN model_digests d ON d.model = o.model AND d.digest = o.digest
        WHERE d.id IS NULL
    ) THEN
        RETURN;
    END IF;
    PERFORM pg_advisory_xact_lock(hashtext('sluice model digests'));
    INSERT INTO model_digests (id, created_at, model, digest, state, offered_by, decided_at)
    SELECT gen_random_uuid(), now(), o.model, o.digest,
           CASE WHEN trust_first AND k.known = 0 THEN 'approved' ELSE 'waiting' END, offering,
           CASE WHEN trust_first AND k.known = 0 THEN now() END
    FROM jsonb_to_recordset(offers) AS o (model text, digest text)
    JOIN models m ON m.name = o.model
    CROSS JOIN LATERAL (
        SELECT count(*) AS known FROM model_digests d WHERE d.model = o.model
    ) k
    WHERE k.known < 32
    ON CONFLICT (model, digest) DO NOTHING;
END
$$;

-- By id (32 hex characters) or name; false where no such node is registered. Facts are merged, so
-- that a short report keeps the rest. The pool is not the node's to say: its registration names it.
CREATE OR REPLACE FUNCTION fleet_observe(
    asked text, seen_state text, seen_facts jsonb, trust_first boolean
) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    seen nodes%ROWTYPE;
BEGIN
    UPDATE nodes SET state = seen_state, facts = facts || seen_facts, last_seen_at = now(),
        region = coalesce(seen_facts ->> 'region', region)
    WHERE replace(id::text, '-', '') = asked OR name = asked
    RETURNING * INTO seen;
    IF seen.id IS NULL THEN
        RETURN false;
    END IF;
    IF seen_state = 'quarantined' THEN
        UPDATE nodes SET
            quarantined_until =
                now() + (seen_facts ->> 'quarantine_s')::double precision * interval '1 second',
            quarantine_reason = left(coalesce(seen_facts ->> 'reason', ''), 300)
        WHERE id = seen.id;
    END IF;
    IF seen_facts ? 'offers' THEN
        PERFORM fleet_offers(
            seen.name, seen_facts -> 'offers', trust_first AND seen.standing = 'active'
        );
    END IF;
    IF (seen_facts ->> 'cold_start_ms')::integer > 0 THEN
        INSERT INTO node_starts (id, created_at, node_id, pool, epoch, cold_start_ms)
        VALUES (gen_random_uuid(), now(), seen.id, seen.pool, seen_facts ->> 'epoch',
                (seen_facts ->> 'cold_start_ms')::integer)
        ON CONFLICT (node_id, epoch) DO NOTHING;
    END IF;
    RETURN true;
END
$$;

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
    -- Only what is more than was seen in these ten seconds is written, in the order of the nodes.
    WITH seen AS (
        SELECT l.node::uuid AS node, date_bin('10 seconds', now(), 'epoch') AS at,
            coalesce((l.facts ->> 'running')::integer, 0) AS running,
            coalesce((l.facts ->> 'waiting')::integer, 0) AS waiting,
            -- Nodes may claim more free blocks than they have.
            1000 - 1000 * least((l.facts ->> 'kv_free_blocks')::bigint,
                (l.facts ->> 'kv_blocks')::bigint)
                / nullif((l.facts ->> 'kv_blocks')::bigint, 0) AS kv,
            (l.facts ->> 'cpu_permille')::smallint AS cpu,
            coalesce((l.facts ->> 'step_us')::bigint, 0) AS step_us
        FROM jsonb_to_recordset(links) AS l (node text, facts jsonb)
        JOIN nodes n ON n.id = l.node::uuid
    )
    INSERT INTO node_moments AS kept
        (node_id, at, running, waiting, kv_permille, cpu_permille, step_us)
    SELECT s.node, s.at, s.running, s.waiting, s.kv, s.cpu, s.step_us
    FROM seen s LEFT JOIN node_moments k ON k.node_id = s.node AND k.at = s.at
    WHERE s.running + s.waiting > 0 AND (k.at IS NULL OR s.running > k.running
        OR s.waiting > k.waiting OR s.kv > coalesce(k.kv_permille, -1)
        OR s.cpu > coalesce(k.cpu_permille, -1) OR s.step_us > k.step_us)
    ORDER BY s.node
    ON CONFLICT (node_id, at) DO UPDATE SET
        running = greatest(kept.running, excluded.running),
        waiting = greatest(kept.waiting, excluded.waiting),
        kv_permille = greatest(kept.kv_permille, excluded.kv_permille),
        cpu_permille = greatest(kept.cpu_permille, excluded.cpu_permille),
        step_us = greatest(kept.step_us, excluded.step_us);
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
GRANT EXECUTE ON FUNCTION fleet_credentials, fleet_observe, fleet_links TO sluice_gateway;
