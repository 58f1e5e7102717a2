-- Drops what is older. Days are compared as text: the planner may try the condition on the name of any
-- other table or index first, and eight digits at the end of such a name need not be a day.
CREATE OR REPLACE FUNCTION telemetry_drop_partitions(parent text, keep_from date, parts_max integer)
RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp SET lock_timeout = '2s' AS $$
DECLARE
    part text;
    dropped integer := 0;
BEGIN
    IF parent NOT IN ('request_records', 'histogram_minutes', 'usage_minutes') THEN
        RAISE EXCEPTION 'telemetry_drop_partitions: % is not a table of telemetry', parent;
    END IF;
    FOR part IN
        SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = parent::regclass
          AND c.relname ~ '_[0-9]{8}$' AND right(c.relname, 8) < to_char(keep_from, 'YYYYMMDD')
        ORDER BY c.relname LIMIT parts_max
    LOOP
        EXECUTE format('DROP TABLE %I', part);
        dropped := dropped + 1;
    END LOOP;
    RETURN dropped;
END $$;
