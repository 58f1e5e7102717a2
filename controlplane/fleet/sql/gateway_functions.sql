-- All that a gateway may ask or tell about nodes.
GRANT SELECT, INSERT, UPDATE ON nodes, node_credentials TO sluice_app;
GRANT SELECT, UPDATE ON nodes TO sluice_ledger;
GRANT SELECT ON node_credentials TO sluice_ledger;

-- The digest is compared by the gateway, in constant time and under a pepper that is not here.
CREATE FUNCTION fleet_credential(asked text)
RETURNS TABLE (node text, name text, digest bytea, models text[])
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT replace(n.id::text, '-', ''), n.name::text, c.digest, c.allowed_models::text[]
    FROM node_credentials c JOIN nodes n ON n.id = c.node_id
    WHERE c.key_id = asked AND c.revoked_at IS NULL
$$;

-- By id (32 hex characters) or name; false where no such node is registered. Facts are merged, so
-- that a short report keeps the rest.
CREATE FUNCTION fleet_observe(asked text, seen_state text, seen_facts jsonb)
RETURNS boolean
LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp AS $$
    UPDATE nodes SET state = seen_state, facts = facts || seen_facts, last_seen_at = now(),
        pool = coalesce(seen_facts ->> 'pool', pool),
        region = coalesce(seen_facts ->> 'region', region)
    WHERE replace(id::text, '-', '') = asked OR name = asked
    RETURNING true
$$;

GRANT CREATE ON SCHEMA public TO sluice_ledger;
ALTER FUNCTION fleet_credential(text) OWNER TO sluice_ledger;
ALTER FUNCTION fleet_observe(text, text, jsonb) OWNER TO sluice_ledger;
REVOKE CREATE ON SCHEMA public FROM sluice_ledger;
REVOKE ALL ON FUNCTION fleet_credential(text), fleet_observe(text, text, jsonb) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION fleet_credential(text), fleet_observe(text, text, jsonb)
    TO sluice_gateway;
