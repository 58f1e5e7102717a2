CREATE OR REPLACE FUNCTION slo_count(
    p_writer uuid, p_minute_s bigint[], p_objective uuid[], p_version integer[], p_good bigint[],
    p_total bigint[]
) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    written integer;
BEGIN
    INSERT INTO slo_counts (objective, step_s, at, version, writer, organization, good, total)
    SELECT c.objective, 60, to_timestamp(c.minute_s), c.version, p_writer, o.organization,
           c.good, c.total
    FROM unnest(p_minute_s, p_objective, p_version, p_good, p_total)
             AS c(minute_s, objective, version, good, total)
    JOIN slo_objectives o ON o.id = c.objective
    ON CONFLICT (objective, step_s, at, version, writer)
        DO UPDATE SET good = excluded.good, total = excluded.total;
    GET DIAGNOSTICS written = ROW_COUNT;
    RETURN written;
END $$;

-- Sums one step of the ladder. Late minutes are summed again: it begins `reopen` behind the present,
-- or with the step that it ended with last if that is earlier, and goes on for two days from the next
-- that was counted.
CREATE OR REPLACE FUNCTION slo_roll_up(
    source_s integer, step integer, moment timestamptz, reopen interval
) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    width interval := make_interval(secs => step);
    zero timestamptz := to_timestamp(0);
    since timestamptz := least(moment - reopen,
                               (SELECT max(at) FROM slo_counts WHERE step_s = step));
    opens timestamptz;
    next timestamptz;
    written integer;
BEGIN
    IF NOT EXISTS (SELECT 1 FROM slo_counts WHERE step_s = step) THEN
        since := '-infinity';
    END IF;
    opens := date_bin(width, (SELECT min(at) FROM slo_counts
                              WHERE step_s = source_s AND at >= since), zero);
    next := coalesce((SELECT min(at) FROM slo_counts
                      WHERE step_s = source_s AND at >= opens + width), opens);
    INSERT INTO slo_counts (objective, step_s, at, version, writer, organization, good, total)
    SELECT c.objective, step, date_bin(width, c.at, zero), c.version,
           '00000000-0000-0000-0000-000000000000', c.organization, sum(c.good), sum(c.total)
    FROM slo_counts c
    WHERE c.step_s = source_s AND c.at >= opens AND c.at < next + interval '2 days'
    GROUP BY c.objective, date_bin(width, c.at, zero), c.version, c.organization
    ON CONFLICT (objective, step_s, at, version, writer)
        DO UPDATE SET good = excluded.good, total = excluded.total;
    GET DIAGNOSTICS written = ROW_COUNT;
    RETURN written;
END $$;

-- Retention, a bounded bite at a time; 0 as `longer` is no longer step. No count goes before a longer
-- step has it.
CREATE OR REPLACE FUNCTION slo_forget(
    step integer, longer integer, keep_from timestamptz, rows_max integer
) RETURNS integer
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

GRANT EXECUTE ON FUNCTION slo_count TO sluice_gateway;
GRANT EXECUTE ON FUNCTION slo_roll_up, slo_forget TO sluice_app;
