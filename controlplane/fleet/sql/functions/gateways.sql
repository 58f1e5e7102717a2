-- Who of the gateways lives, and which part of every rate limit each may count alone.

-- A gateway says that it lives and which share it enforces now (1/held of each limit; 0: none).
-- Answers with all that live and the share it may enforce from now on. `share_of` covers the larger
-- of the two until it is heard again, and a share is enlarged only where the others leave room: so
-- all shares together never pass the whole, whatever joins, leaves or misses an answer. Calls are
-- made one after another. Who was not heard for 5 seconds is removed; a gateway trusts its share
-- for a shorter time than that. It takes the nodes of the pools that it names, of all by none.
CREATE OR REPLACE FUNCTION fleet_gateway_alive(
    me text, my_url text, held integer, my_pools text[] DEFAULT '{}'
)
RETURNS TABLE (gateway text, gateway_url text, granted integer, gateway_pools text[])
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    seen_at timestamptz;
    live integer;
    taken numeric;
    allowed integer := 0;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('sluice gateways'));
    seen_at := clock_timestamp();
    DELETE FROM gateways WHERE heartbeat_at < seen_at - interval '5 s';
    INSERT INTO gateways AS g (instance, url, pools, started_at, heartbeat_at, share_of)
    VALUES (me, my_url, my_pools, seen_at, seen_at, 0)
    ON CONFLICT (instance) DO UPDATE SET url = my_url, heartbeat_at = seen_at;
    SELECT count(*), coalesce(sum(1.0 / nullif(g.share_of, 0)) FILTER (WHERE g.instance <> me), 0)
        INTO live, taken FROM gateways g;
    IF taken + 1.0 / live <= 1.000001 THEN
        allowed := live;
    ELSIF held > 0 THEN
        allowed := greatest(held, live);
    END IF;
    UPDATE gateways SET share_of = coalesce(least(nullif(held, 0), nullif(allowed, 0)), 0)
    WHERE instance = me;
    RETURN QUERY SELECT g.instance::text, g.url::text, allowed, g.pools::text[] FROM gateways g ORDER BY g.instance;
END
$$;

-- It ends in good order: others need not wait until it counts as dead.
CREATE OR REPLACE FUNCTION fleet_gateway_leave(me text)
RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp AS $$
    DELETE FROM gateways WHERE instance = me
$$;

GRANT EXECUTE ON FUNCTION fleet_gateway_alive, fleet_gateway_leave TO sluice_gateway;
