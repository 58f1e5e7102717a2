-- Daily partitions of the ledger; none is ever dropped. TRUNCATE triggers are not copied to
-- partitions by PostgreSQL, so each gets its own. There is no default partition: a hold into a day
-- that was not made fails, and start-up and the daily job keep a week ahead.

CREATE OR REPLACE FUNCTION ledger_make_partitions(first_day date, last_day date) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp SET lock_timeout = '2s' AS $$
DECLARE
    day date;
    part text;
    made integer := 0;
BEGIN
    IF last_day - first_day > 40 THEN
        RAISE EXCEPTION 'ledger_make_partitions: at most 40 days at once';
    END IF;
    FOR day IN SELECT d::date FROM generate_series(first_day, last_day, interval '1 day') AS d LOOP
        part := to_char(day, '"transfers_"YYYYMMDD');
        CONTINUE WHEN to_regclass(part) IS NOT NULL;
        EXECUTE format('CREATE TABLE %I (LIKE transfers INCLUDING ALL)', part);
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', part);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', part);
        EXECUTE format('CREATE TRIGGER never_truncated BEFORE TRUNCATE ON %I FOR EACH STATEMENT '
                       'EXECUTE FUNCTION ledger_refuse_change()', part);
        EXECUTE format('ALTER TABLE transfers ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)',
                       part, request_floor(day::timestamp AT TIME ZONE 'UTC'),
                       request_floor((day + 1)::timestamp AT TIME ZONE 'UTC'));
        made := made + 1;
    END LOOP;
    RETURN made;
END $$;

-- Making a partition takes the owner of the table; all else runs as the ledger's role.
REVOKE ALL ON FUNCTION ledger_make_partitions FROM PUBLIC;
GRANT EXECUTE ON FUNCTION ledger_make_partitions TO sluice_app;
