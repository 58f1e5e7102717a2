-- What gateways ask and tell about the life of nodes: standing, quarantine, digests, starts, load.
GRANT SELECT, INSERT, UPDATE ON enrolment_tokens, model_digests, pool_scales TO sluice_app;
GRANT SELECT ON node_starts, node_links, gateway_queues TO sluice_app;
GRANT SELECT, INSERT, UPDATE ON model_digests TO sluice_ledger;
GRANT SELECT, INSERT ON node_starts TO sluice_ledger;
GRANT SELECT, INSERT, UPDATE, DELETE ON node_links, gateway_queues TO sluice_ledger;

-- Written every other second and worth nothing after a crash.
ALTER TABLE node_links SET UNLOGGED;
ALTER TABLE gateway_queues SET UNLOGGED;

-- Gateways fetch and serve what is approved, and that is all they need to hear of.
CREATE CONSTRAINT TRIGGER model_digest_added AFTER INSERT ON model_digests
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.state = 'approved')
    EXECUTE FUNCTION config_changed();
CREATE CONSTRAINT TRIGGER model_digest_decided AFTER UPDATE ON model_digests
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION config_changed();

DROP FUNCTION fleet_credentials(text[]);
-- The digest is compared by the gateway, in constant time and under a pepper that is not here.
-- One key id at a handshake; those of all live links again and again, so that a revoked one is cut
-- and every gateway hears what staff have decided about a node.
CREATE FUNCTION fleet_credentials(asked text[])
RETURNS TABLE (key_id text, node text, name text, pool text, digest bytea, models text[],
               standing text, drain_s double precision, quarantined boolean)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT c.key_id::text, replace(n.id::text, '-', ''), n.name::text, n.pool::text, c.digest,
           c.allowed_models::text[], n.standing::text,
           greatest(0, coalesce(extract(epoch FROM n.drain_until - now()), 0))::double precision,
           coalesce(n.quarantined_until > now(), false)
    FROM node_credentials c JOIN nodes n ON n.id = c.node_id
    WHERE c.key_id = ANY (asked) AND c.revoked_at IS NULL AND n.standing <> 'removed'
$$;

-- Digests that an admitted node offers wait for staff. With `trust_first` the first one that is
-- ever offered for a model is approved; the lock makes that one. The bound keeps a node that
-- invents digests from filling the table.
CREATE FUNCTION fleet_offers(offering text, offers jsonb, trust_first boolean)
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

DROP FUNCTION fleet_observe(text, text, jsonb);
-- By id (32 hex characters) or name; false where no such node is registered. Facts are merged, so
-- that a short report keeps the rest. The pool is not the node's to say: its registration names it.
CREATE FUNCTION fleet_observe(asked text, seen_state text, seen_facts jsonb, trust_first boolean)
RETURNS boolean
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
-- who wants to know it to the second reads the links.
CREATE FUNCTION fleet_links(me text, links jsonb, waits jsonb)
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

GRANT CREATE ON SCHEMA public TO sluice_ledger;
ALTER FUNCTION fleet_credentials(text[]) OWNER TO sluice_ledger;
ALTER FUNCTION fleet_offers(text, jsonb, boolean) OWNER TO sluice_ledger;
ALTER FUNCTION fleet_observe(text, text, jsonb, boolean) OWNER TO sluice_ledger;
ALTER FUNCTION fleet_links(text, jsonb, jsonb) OWNER TO sluice_ledger;
REVOKE CREATE ON SCHEMA public FROM sluice_ledger;
REVOKE ALL ON FUNCTION fleet_credentials(text[]), fleet_offers(text, jsonb, boolean),
    fleet_observe(text, text, jsonb, boolean), fleet_links(text, jsonb, jsonb) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION fleet_credentials(text[]), fleet_observe(text, text, jsonb, boolean),
    fleet_links(text, jsonb, jsonb) TO sluice_gateway;
