-- Good and counted requests of objectives: minutes as gateways write them, and their sums over
-- 5 minutes and hours. A writer repeats its whole minute, so that a repeat changes nothing.

CREATE TABLE slo_counts (
    objective uuid NOT NULL,
    step_s integer NOT NULL CHECK (step_s IN (60, 300, 3600)),
    at timestamptz NOT NULL,
    version integer NOT NULL,
    writer uuid NOT NULL,
    organization uuid NOT NULL,
    good bigint NOT NULL,
    total bigint NOT NULL CHECK (good BETWEEN 0 AND total),
    PRIMARY KEY (objective, step_s, at, version, writer)
);
CREATE INDEX slo_counts_by_time ON slo_counts (step_s, at);

CREATE FUNCTION slo_count(
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
CREATE FUNCTION slo_roll_up(source_s integer, step integer, moment timestamptz, reopen interval)
RETURNS integer
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

-- Retention, a bounded bite at a time.
CREATE FUNCTION slo_forget(step integer, keep_from timestamptz, rows_max integer) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    gone integer;
BEGIN
    DELETE FROM slo_counts c USING (
        SELECT objective, step_s, at, version, writer FROM slo_counts
        WHERE step_s = step AND at < keep_from ORDER BY at LIMIT rows_max
    ) AS old
    WHERE (c.objective, c.step_s, c.at, c.version, c.writer)
        = (old.objective, old.step_s, old.at, old.version, old.writer);
    GET DIAGNOSTICS gone = ROW_COUNT;
    RETURN gone;
END $$;

-- Jobs go through organizations one by one, each in its scope.
CREATE FUNCTION slo_organizations() RETURNS SETOF uuid
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT DISTINCT o.organization FROM slo_objectives o
    WHERE o.ended_at IS NULL
       OR EXISTS (SELECT 1 FROM slo_alerts a WHERE a.objective_id = o.id AND a.state = 'firing')
$$;

CREATE FUNCTION slo_deliveries_due(rows_max integer)
RETURNS TABLE (organization uuid, delivery uuid)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT d.organization, d.id FROM slo_deliveries d
    WHERE d.sent_at IS NULL AND d.due_at <= now() ORDER BY d.due_at LIMIT rows_max
$$;
