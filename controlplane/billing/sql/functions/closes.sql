-- Closing a month.

-- Records a close, once the month is over by the database's clock and every line of it is sealed; the
-- first of two is the one that counts.
CREATE OR REPLACE FUNCTION ledger_period_close(
    p_id uuid, p_organization uuid, p_period text, p_begins timestamptz, p_ends timestamptz,
    p_transfers bigint, p_entries bigint, p_totals jsonb, p_last timestamptz, p_digest bytea,
    p_reconciliation uuid, p_actor text
) RETURNS SETOF period_closes
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_open text;
BEGIN
    PERFORM ledger_require_scope(p_organization);
    v_open := ledger_period_open(p_ends);
    IF v_open IS NOT NULL THEN
        RAISE EXCEPTION 'period: %', v_open USING ERRCODE = 'SL422';
    END IF;
    INSERT INTO period_closes (id, organization, period, begins, ends, transfers, entries, totals,
                               last_booked_at, digest, reconciliation, closed_by)
    VALUES (p_id, p_organization, p_period, p_begins, p_ends, p_transfers, p_entries, p_totals,
            p_last, p_digest, p_reconciliation, p_actor)
    ON CONFLICT (organization, period) DO NOTHING;
    RETURN QUERY SELECT * FROM period_closes
                 WHERE organization = p_organization AND period = p_period;
END $$;

-- Why a month that ends at `ends` cannot be closed yet; NULL where it can.
CREATE OR REPLACE FUNCTION ledger_period_open(ends timestamptz) RETURNS text
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = public, pg_temp
SET plan_cache_mode = force_custom_plan AS $$
DECLARE
    v_sealed timestamptz;
    floor_id uuid;
BEGIN
    -- A minute is far longer than any transaction of ours lasts: nothing can still land in it.
    IF clock_timestamp() < ends + interval '1 minute' THEN
        RETURN 'it has not ended';
    END IF;
    SELECT coalesce(max(to_at), '-infinity') INTO v_sealed FROM ledger_seals;
    IF v_sealed >= ends THEN
        RETURN NULL;
    END IF;
    floor_id := request_floor(greatest(v_sealed - interval '8 days', 'epoch'));
    IF EXISTS (SELECT 1 FROM transfers t WHERE t.request >= floor_id AND t.booked_at >= v_sealed
                                           AND t.booked_at < ends) THEN
        RETURN 'not every line of it is sealed';
    END IF;
    RETURN NULL;
END $$;

GRANT EXECUTE ON FUNCTION ledger_period_close, ledger_period_open TO sluice_app;
