-- Days are the last step of the ladder. No count goes before a longer step has it.
ALTER TABLE slo_counts DROP CONSTRAINT slo_counts_step_s_check;
ALTER TABLE slo_counts ADD CONSTRAINT slo_counts_step_s_check
    CHECK (step_s IN (60, 300, 3600, 86400));

DROP FUNCTION slo_forget(integer, timestamptz, integer);
-- Retention, a bounded bite at a time; 0 as `longer` is no longer step.
CREATE FUNCTION slo_forget(step integer, longer integer, keep_from timestamptz, rows_max integer)
RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    summed timestamptz := (SELECT max(at) FROM slo_counts WHERE step_s = longer);
    gone integer;
BEGIN
    IF longer <> 0 THEN
        -- The longest that there is may be summed again.
        keep_from := least(keep_from, coalesce(summed, '-infinity'));
    END IF;
    DELETE FROM slo_counts c USING (
        SELECT objective, step_s, at, version, writer FROM slo_counts
        WHERE step_s = step AND at < keep_from ORDER BY at LIMIT rows_max
    ) AS old
    WHERE (c.objective, c.step_s, c.at, c.version, c.writer)
        = (old.objective, old.step_s, old.at, old.version, old.writer);
    GET DIAGNOSTICS gone = ROW_COUNT;
    RETURN gone;
END $$;

GRANT CREATE ON SCHEMA public TO sluice_ledger;
ALTER FUNCTION slo_forget(integer, integer, timestamptz, integer) OWNER TO sluice_ledger;
REVOKE CREATE ON SCHEMA public FROM sluice_ledger;
REVOKE ALL ON FUNCTION slo_forget(integer, integer, timestamptz, integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION slo_forget(integer, integer, timestamptz, integer) TO sluice_app;
