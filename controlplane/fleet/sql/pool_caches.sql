-- What `fleet_credentials` told before, and what the node's pool demands of its prefix cache.
ALTER FUNCTION fleet_credentials(text[]) RENAME TO fleet_credential_rows;
CREATE FUNCTION fleet_credentials(asked text[])
RETURNS TABLE (key_id text, node text, name text, pool text, digest bytea, models text[],
               standing text, drain_s double precision, quarantined boolean,
               separate_caches boolean)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT c.*, p.separate_caches
    FROM fleet_credential_rows(asked) c JOIN pools p ON p.name = c.pool
$$;

GRANT CREATE ON SCHEMA public TO sluice_ledger;
ALTER FUNCTION fleet_credentials(text[]) OWNER TO sluice_ledger;
REVOKE CREATE ON SCHEMA public FROM sluice_ledger;
REVOKE ALL ON FUNCTION fleet_credential_rows(text[]) FROM sluice_gateway;
REVOKE ALL ON FUNCTION fleet_credentials(text[]) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION fleet_credentials(text[]) TO sluice_gateway;
