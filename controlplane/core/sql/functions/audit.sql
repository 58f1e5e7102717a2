-- One row as the text that its link hashes: every column, as a JSON array of texts.
CREATE OR REPLACE FUNCTION audit_line(e audit_entries) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT to_jsonb(ARRAY[
        e.id::text, (extract(epoch FROM e.created_at) * 1000000)::bigint::text, e.actor_id::text,
        e.actor_label, e.organization_id::text, e.action, e.subject_type, e.subject_id::text,
        e.detail::text, e.before::text, e.after::text, e.channel, e.address, e.agent, e.credential
    ])::text
$$;

-- Links at most `rows_max` rows that have none yet, oldest first; returns how many. A row that was
-- written in a long transaction is linked after younger ones: the order is that of the links.
CREATE OR REPLACE FUNCTION audit_chain(rows_max integer) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    last audit_links;
    since timestamptz;
    line record;
    chained bigint := 0;
BEGIN
    -- One at a time; the loser of the race finds nothing left to do.
    PERFORM pg_advisory_xact_lock(hashtext('audit_chain'));
    SELECT * INTO last FROM audit_links ORDER BY number DESC LIMIT 1;
    -- No transaction lasts an hour.
    since := coalesce(last.chained_at - interval '1 hour', '-infinity');
    FOR line IN
        SELECT e.id, audit_line(e) AS told FROM audit_entries e
        WHERE e.created_at >= since
          AND NOT EXISTS (SELECT 1 FROM audit_links l WHERE l.entry = e.id)
        ORDER BY e.created_at, e.id LIMIT rows_max
    LOOP
        last.number := coalesce(last.number, 0) + 1;
        last.digest := sha256(coalesce(last.digest, sha256('')) || convert_to(line.told, 'UTF8'));
        INSERT INTO audit_links (number, entry, digest, chained_at)
        VALUES (last.number, line.id, last.digest, clock_timestamp());
        chained := chained + 1;
    END LOOP;
    RETURN chained;
END $$;

GRANT EXECUTE ON FUNCTION audit_chain TO sluice_app;
