-- Daily partitions: bounds of request ids, and the makers and droppers of telemetry's own tables.
-- Tables are made apart and then attached, since CREATE TABLE … PARTITION OF would stop all writers.

CREATE OR REPLACE FUNCTION request_floor(moment timestamptz) RETURNS uuid
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT (lpad(to_hex((extract(epoch FROM moment) * 1000)::bigint), 12, '0')
            || repeat('0', 20))::uuid
$$;

CREATE OR REPLACE FUNCTION telemetry_make_partitions(first_day date, last_day date) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp SET lock_timeout = '2s' AS $$
DECLARE
    parent text;
    part text;
    day date;
    opens timestamptz;
    closes timestamptz;
    made integer := 0;
BEGIN
    IF last_day - first_day > 40 THEN
        RAISE EXCEPTION 'telemetry_make_partitions: at most 40 days at once';
    END IF;
    FOREACH parent IN ARRAY ARRAY['request_records', 'histogram_minutes', 'usage_minutes'] LOOP
        day := first_day;
        WHILE day <= last_day LOOP
            part := parent || to_char(day, '_YYYYMMDD');
            opens := day::timestamp AT TIME ZONE 'UTC';
            closes := (day + 1)::timestamp AT TIME ZONE 'UTC';
            day := day + 1;
            CONTINUE WHEN to_regclass(part) IS NOT NULL;
            EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING ALL)', part, parent);
            EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', part);
            EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', part);
            IF parent = 'request_records' THEN
                EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)',
                               parent, part, request_floor(opens), request_floor(closes));
            ELSE
                EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)',
                               parent, part, opens, closes);
            END IF;
            made := made + 1;
        END LOOP;
    END LOOP;
    RETURN made;
END $$;

-- Drops whole days of one parent that ended before `keep_from`; at most `parts_max` of them. Days are
-- compared as text: the planner may try the condition on the name of any other table or index first,
-- and eight digits at the end of such a name need not be a day.
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

REVOKE ALL ON FUNCTION telemetry_make_partitions(date, date) FROM PUBLIC;
REVOKE ALL ON FUNCTION telemetry_drop_partitions(text, date, integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION telemetry_make_partitions(date, date) TO sluice_app;
GRANT EXECUTE ON FUNCTION telemetry_drop_partitions(text, date, integer) TO sluice_app;
