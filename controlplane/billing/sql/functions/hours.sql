-- Adds the charges booked in [opens, closes) to their hours; called once for each range, by the seal
-- over it. `floor_id` is the lowest request id that can be booked there.
CREATE OR REPLACE FUNCTION ledger_hours_add(floor_id uuid, opens timestamptz, closes timestamptz)
RETURNS void
LANGUAGE sql SET search_path = public, pg_temp SET plan_cache_mode = force_custom_plan AS $$
    INSERT INTO ledger_hours AS h (organization, hour, project, key, model, price_version, input_pico,
                                   cached_pico, output_pico, requests, uncached, cached, output,
                                   nano)
    SELECT t.organization, date_trunc('hour', t.booked_at, 'UTC'), t.project, t.key, t.model,
           t.price_version, t.input_pico, t.cached_pico, t.output_pico,
           count(*) FILTER (WHERE t.kind <> 'overage'), sum(t.uncached), sum(t.cached),
           sum(t.output), sum(t.amount)
    FROM transfers t
    WHERE t.request >= floor_id AND t.booked_at >= opens AND t.booked_at < closes
      AND t.kind IN ('settle', 'overage', 'late')
    GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9
    ON CONFLICT (organization, hour, project, key, model, price_version, input_pico, cached_pico,
                 output_pico)
        DO UPDATE SET requests = h.requests + excluded.requests,
                      uncached = h.uncached + excluded.uncached,
                      cached = h.cached + excluded.cached, output = h.output + excluded.output,
                      nano = h.nano + excluded.nano
$$;
