-- Budgets as people set them, and their turn into a new period.

-- What a key, project, model of one or organization was charged since `since`: the sealed hours, and line by line
-- what lies before the first whole hour or after the last seal. One statement, so one view of both.
CREATE OR REPLACE FUNCTION ledger_spent_since(
    p_scope text, p_subject uuid, p_organization uuid, since timestamptz
) RETURNS bigint
LANGUAGE plpgsql STABLE SET search_path = public, pg_temp
SET plan_cache_mode = force_custom_plan AS $$
DECLARE
    floor_id uuid := request_floor(since - interval '8 days');
    whole timestamptz := date_trunc('hour', since + interval '1 hour' - interval '1 us', 'UTC');
    v_sealed timestamptz;
    mine uuid[] := ARRAY[p_subject];
    v_model text;
    spent bigint;
BEGIN
    IF p_scope IN ('model', 'users') THEN
        SELECT ARRAY[project], model INTO mine, v_model FROM budget_parts WHERE budget = p_subject;
    END IF;
    SELECT max(to_at) INTO v_sealed FROM ledger_seals;
    -- A key that took over from another spends from the other's budget.
    IF p_scope = 'key' THEN
        SELECT mine || array_agg(k.id) INTO mine FROM api_keys k WHERE k.limits_of_id = p_subject;
    END IF;
    WITH lines AS (
        SELECT nano FROM ledger_hours
        WHERE organization = p_organization AND hour >= whole
          AND CASE p_scope WHEN 'key' THEN key WHEN 'organization' THEN organization ELSE project END
              = ANY (mine) AND model = coalesce(v_model, model)
        UNION ALL
        SELECT amount FROM transfers
        WHERE request >= floor_id AND booked_at >= since AND booked_at < whole
          AND kind IN ('settle', 'overage', 'late') AND organization = p_organization
          AND CASE p_scope WHEN 'key' THEN key WHEN 'organization' THEN organization ELSE project END
              = ANY (mine) AND model = coalesce(v_model, model)
        UNION ALL
        SELECT amount FROM transfers
        WHERE request >= floor_id AND booked_at >= greatest(whole, v_sealed)
          AND kind IN ('settle', 'overage', 'late') AND organization = p_organization
          AND CASE p_scope WHEN 'key' THEN key WHEN 'organization' THEN organization ELSE project END
              = ANY (mine) AND model = coalesce(v_model, model)
    )
    -- What every end user gets is charged nothing itself.
    SELECT coalesce(sum(nano), 0) INTO spent FROM lines WHERE p_scope <> 'users';
    RETURN spent;
END $$;

-- Sets what something may spend in a period, or in all. A change of the amount keeps the period that
-- runs; another period or zone begins at `p_began`, with what was spent since then.
CREATE OR REPLACE FUNCTION ledger_budget_set(
    p_budget uuid, p_organization uuid, p_scope text, p_allowance bigint, p_period text,
    p_zone text, p_rollover boolean, p_alerts smallint[], p_began timestamptz,
    p_turns timestamptz
) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    mine budgets;
    terms budget_terms;
BEGIN
    PERFORM ledger_require_scope(p_organization);
    INSERT INTO budgets (id, organization, scope, lim)
    VALUES (p_budget, p_organization, p_scope, p_allowance) ON CONFLICT (id) DO NOTHING;
    SELECT * INTO mine FROM budgets WHERE id = p_budget FOR UPDATE;
    IF mine.organization <> p_organization OR mine.scope <> p_scope OR mine.scope = 'wallet' THEN
        RAISE EXCEPTION 'the % % is none of organization %', p_scope, p_budget, p_organization
            USING ERRCODE = 'insufficient_privilege';
    END IF;
    SELECT * INTO terms FROM budget_terms WHERE budget = p_budget FOR UPDATE;
    IF terms.budget IS NULL OR (terms.period, terms.zone) <> (p_period, p_zone) THEN
        terms.began_at := p_began;
        terms.turns_at := p_turns;
        terms.carried := 0;
        terms.given := 0;
        terms.base := CASE p_period WHEN 'none' THEN 0 ELSE
            mine.posted - ledger_spent_since(p_scope, p_budget, p_organization, p_began) END;
    END IF;
    INSERT INTO budget_terms (budget, organization, allowance, carried, given, base, began_at,
                              turns_at, rollover, period, zone, alerts)
    VALUES (p_budget, p_organization, p_allowance, terms.carried, terms.given, terms.base,
            terms.began_at, terms.turns_at, p_rollover, p_period, p_zone, p_alerts)
    ON CONFLICT (budget) DO UPDATE
        SET allowance = excluded.allowance, carried = excluded.carried, given = excluded.given,
            base = excluded.base, began_at = excluded.began_at, turns_at = excluded.turns_at,
            rollover = excluded.rollover, period = excluded.period, zone = excluded.zone,
            alerts = excluded.alerts;
    PERFORM ledger_budget_limit(p_budget);
END $$;

-- Begins the period that runs now, if the one that ended at `p_due` is still the budget's. What was
-- spent since `p_began` belongs to it, so that a turn that comes late allows no more. True if turned.
CREATE OR REPLACE FUNCTION ledger_budget_turn(
    p_budget uuid, p_due timestamptz, p_began timestamptz, p_turns timestamptz
) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    mine budgets;
    terms budget_terms;
    spent bigint;
BEGIN
    SELECT * INTO mine FROM budgets WHERE id = p_budget FOR UPDATE;
    PERFORM ledger_require_scope(mine.organization);
    SELECT * INTO terms FROM budget_terms WHERE budget = p_budget FOR UPDATE;
    IF terms.turns_at IS DISTINCT FROM p_due OR p_due > clock_timestamp() THEN
        RETURN false;
    END IF;
    IF p_began < p_due OR p_began > clock_timestamp() OR p_turns <= clock_timestamp() THEN
        RAISE EXCEPTION 'a period from % to % is not the one that runs', p_began, p_turns;
    END IF;
    spent := ledger_spent_since(mine.scope, p_budget, mine.organization, p_began);
    UPDATE budget_terms
    SET base = mine.posted - spent, given = 0, began_at = p_began, turns_at = p_turns,
        -- Never more than one allowance: money unused for a year is not a year's money.
        carried = CASE WHEN rollover
            THEN least(allowance, greatest(0, mine.lim - (mine.posted - spent))) ELSE 0 END
    WHERE budget = p_budget;
    PERFORM ledger_budget_limit(p_budget);
    RETURN true;
END $$;

-- Puts a budget's limit where its terms say; its row is locked already.
CREATE OR REPLACE FUNCTION ledger_budget_limit(p_budget uuid) RETURNS void
LANGUAGE sql SET search_path = public, pg_temp AS $$
    UPDATE budgets b SET lim = l.lim, over = greatest(0, b.posted + b.held - l.lim)
    FROM (SELECT greatest(0, least(4000000000000000000,
                                   base::numeric + allowance + carried + given))::bigint AS lim
          FROM budget_terms WHERE budget = p_budget) AS l
    WHERE b.id = p_budget
$$;

GRANT EXECUTE ON FUNCTION ledger_budget_set, ledger_budget_turn TO sluice_app;
