-- Drops what is older. The day is read from names of partitions alone: a condition of its own would not
-- keep the planner from trying it on every other table's name first.
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
          AND CASE WHEN c.relname ~ '_[0-9]{8}$'
                   THEN to_date(right(c.relname, 8), 'YYYYMMDD') < keep_from ELSE false END
        ORDER BY c.relname LIMIT parts_max
    LOOP
        EXECUTE format('DROP TABLE %I', part);
        dropped := dropped + 1;
    END LOOP;
    RETURN dropped;
END $$;
