-- Adds the charges booked in [opens, closes) to their hours; called once for each range, by the seal
-- over it. `floor_id` is the lowest request id that can be booked there. Whom a line is for stands on
-- its hold. Of a project and day 10,000 pairs of end user and labels are kept apart; what comes after
-- them is summed as that of the end user "(other)", so that no sum lacks it.
CREATE OR REPLACE FUNCTION ledger_hours_add(floor_id uuid, opens timestamptz, closes timestamptz)
RETURNS void
LANGUAGE sql SET search_path = public, pg_temp SET plan_cache_mode = force_custom_plan AS $$
    WITH lines AS MATERIALIZED (
        SELECT t.*, date_trunc('hour', t.booked_at, 'UTC') AS hour,
               date_trunc('day', t.booked_at, 'UTC') AS day,
               coalesce(h.others #>> '{"",user}', '') AS end_user,
               coalesce(nullif(h.others #>> '{"",labels}', '{}'), '') AS labels
        FROM transfers t
             LEFT JOIN transfers h ON h.request = t.request AND h.slot = 0 AND h.others ? ''
        WHERE t.request >= floor_id AND t.booked_at >= opens AND t.booked_at < closes
          AND t.kind IN ('settle', 'overage', 'late')
    ), named AS MATERIALIZED (
        SELECT DISTINCT organization, project, day, end_user, labels FROM lines
        WHERE (end_user, labels) <> ('', '')
    ), known AS MATERIALIZED (
        SELECT DISTINCT n.organization, n.project, n.day, h.end_user, h.labels
        FROM (SELECT DISTINCT organization, project, day FROM named) AS n
             JOIN ledger_hours h ON h.organization = n.organization AND h.project = n.project
                  AND h.hour >= n.day AND h.hour < n.day + interval '1 day'
        WHERE (h.end_user, h.labels) <> ('', '')
    ), beyond AS (
        SELECT f.* FROM (
            SELECT *, row_number() OVER (PARTITION BY project, day ORDER BY end_user) AS place
            FROM (TABLE named EXCEPT TABLE known) AS fresh
        ) AS f
        WHERE f.place + (SELECT count(*) FROM known k
                         WHERE k.project = f.project AND k.day = f.day) > 10000
    )
    INSERT INTO ledger_hours AS h (organization, hour, project, key, model, price_version, input_pico,
                                   cached_pico, output_pico, end_user, labels, requests, uncached,
                                   cached, output, nano)
    SELECT l.organization, l.hour, l.project, l.key, l.model, l.price_version, l.input_pico,
           l.cached_pico, l.output_pico,
           CASE WHEN b.place IS NULL THEN l.end_user ELSE '(other)' END,
           CASE WHEN b.place IS NULL THEN l.labels ELSE '' END,
           count(*) FILTER (WHERE l.kind <> 'overage'), sum(l.uncached), sum(l.cached),
           sum(l.output), sum(l.amount)
    FROM lines l LEFT JOIN beyond b USING (organization, project, day, end_user, labels)
    GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11
    ON CONFLICT (organization, hour, project, key, model, price_version, input_pico, cached_pico,
                 output_pico, end_user, labels)
        DO UPDATE SET requests = h.requests + excluded.requests,
                      uncached = h.uncached + excluded.uncached,
                      cached = h.cached + excluded.cached, output = h.output + excluded.output,
                      nano = h.nano + excluded.nano
$$;
