-- All that a gateway may ask or tell about nodes.
GRANT SELECT, INSERT, UPDATE ON nodes, node_credentials TO sluice_app;
GRANT SELECT, UPDATE ON nodes TO sluice_ledger;
GRANT SELECT ON node_credentials TO sluice_ledger;

-- The digest is compared by the gateway, in constant time and under a pepper that is not here.
-- One key id at a handshake; those of all live links again and again, so that a revoked one is cut.
CREATE FUNCTION fleet_credentials(asked text[])
RETURNS TABLE (key_id text, node text, name text, pool text, digest bytea, models text[])
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT c.key_id::text, replace(n.id::text, '-', ''), n.name::text, n.pool::text, c.digest,
           c.allowed_models::text[]
    FROM node_credentials c JOIN nodes n ON n.id = c.node_id
    WHERE c.key_id = ANY (asked) AND c.revoked_at IS NULL
$$;

-- By id (32 hex characters) or name; false where no such node is registered. Facts are merged, so
-- that a short report keeps the rest. The pool is not the node's to say: its registration names it.
CREATE FUNCTION fleet_observe(asked text, seen_state text, seen_facts jsonb)
RETURNS boolean
LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp AS $$
    UPDATE nodes SET state = seen_state, facts = facts || seen_facts, last_seen_at = now(),
        region = coalesce(seen_facts ->> 'region', region)
    WHERE replace(id::text, '-', '') = asked OR name = asked
    RETURNING true
$$;

GRANT CREATE ON SCHEMA public TO sluice_ledger;
ALTER FUNCTION fleet_credentials(text[]) OWNER TO sluice_ledger;
ALTER FUNCTION fleet_observe(text, text, jsonb) OWNER TO sluice_ledger;
REVOKE CREATE ON SCHEMA public FROM sluice_ledger;
REVOKE ALL ON FUNCTION fleet_credentials(text[]), fleet_observe(text, text, jsonb) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION fleet_credentials(text[]), fleet_observe(text, text, jsonb)
    TO sluice_gateway;
