-- Settlements. `ledger_settle` takes the open holds away and compares them with what the gateway
-- believes; anything else than an exact match raises, and `ledger_settle_exact` decides from rows.
-- Amount 0 releases. A request settles once: a repeat of either function changes nothing.

-- What slot 1 tells of: all that was held where it is given back, else the charge up to it. A plain
-- expression, which PostgreSQL puts into the statements that call it.
CREATE OR REPLACE FUNCTION ledger_resolved(held bigint, amount bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN amount = 0 THEN held WHEN held = 0 THEN amount ELSE least(amount, held) END
$$;

CREATE OR REPLACE FUNCTION ledger_settle(
    p_request uuid[], p_organization uuid[], p_project uuid[], p_key uuid[], p_held bigint[],
    p_amount bigint[], p_model text[], p_version integer[], p_input bigint[], p_cached bigint[],
    p_output bigint[], p_tokens text[], p_source text[], p_budgets text[]
) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp
SET plan_cache_mode = force_generic_plan SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashagg = off AS $$
DECLARE
    v_missing bigint;
    v_overages bigint;
BEGIN
    WITH asked AS MATERIALIZED (
        SELECT unnest(p_request) AS request, unnest(p_organization) AS organization,
               unnest(p_project) AS project, unnest(p_key) AS key, unnest(p_held) AS held,
               unnest(p_amount) AS amount, unnest(p_model) AS model,
               unnest(p_version) AS version, unnest(p_input) AS input,
               unnest(p_cached) AS cached, unnest(p_output) AS output,
               unnest(p_tokens)::integer[] AS tokens, unnest(p_source) AS source,
               unnest(p_budgets)::uuid[] AS budgets
        ORDER BY 1
    ), gone AS (
        DELETE FROM open_holds o USING asked a
        WHERE o.request = a.request AND a.held > 0 AND o.amount = a.held
          AND o.budgets = a.budgets
        RETURNING a.held, a.amount, a.budgets
    ), found AS MATERIALIZED (
        SELECT (SELECT count(*) FROM asked a WHERE a.held > 0) - count(*) AS missing,
               count(*) FILTER (WHERE g.amount > g.held) AS overages
        FROM gone g
    ), change AS MATERIALIZED (
        SELECT m.id, sum(m.held)::bigint AS held, sum(m.amount)::bigint AS amount
        FROM (SELECT unnest(g.budgets) AS id, g.held, g.amount FROM gone g) AS m
        GROUP BY m.id ORDER BY m.id
    ), moved AS (
        UPDATE budgets AS b
        SET held = b.held - c.held, posted = b.posted + c.amount,
            over = greatest(b.over, b.posted + c.amount + b.held - c.held - b.lim)
        FROM change c WHERE b.id = c.id AND (SELECT missing = 0 FROM found)
    ), booked AS (
        INSERT INTO transfers (request, slot, kind, debit, credit, amount, organization, project,
                               key, model, price_version, input_pico, cached_pico, output_pico,
                               uncached, cached, output, source)
        SELECT a.request, 1, CASE WHEN a.amount = 0 THEN 'release' ELSE 'settle' END,
               ledger_payer(a.organization, CASE WHEN a.held > 0 THEN a.budgets END),
               'revenue:' || a.model, ledger_resolved(a.held, a.amount), a.organization, a.project,
               a.key, a.model, a.version, a.input, a.cached, a.output, a.tokens[1], a.tokens[2],
               a.tokens[3], a.source
        FROM asked a WHERE (SELECT missing = 0 FROM found)
    )
    SELECT missing, overages INTO v_missing, v_overages FROM found;
    IF v_missing > 0 THEN
        RAISE EXCEPTION '% holds are not open as believed', v_missing USING ERRCODE = 'SL001';
    END IF;
    IF v_overages > 0 THEN
        PERFORM ledger_book_overages(p_request, p_organization, p_project, p_key, p_held, p_amount,
                                     p_model, p_version, p_input, p_cached, p_output, p_source,
                                     p_budgets);
    END IF;
    RETURN NULL;
END $$;

-- What came beyond the holds. Called by the functions around it, under their settings.
CREATE OR REPLACE FUNCTION ledger_book_overages(
    p_request uuid[], p_organization uuid[], p_project uuid[], p_key uuid[], p_held bigint[],
    p_amount bigint[], p_model text[], p_version integer[], p_input bigint[], p_cached bigint[],
    p_output bigint[], p_source text[], p_budgets text[]
) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO transfers (request, slot, kind, debit, credit, amount, organization, project, key,
                           model, price_version, input_pico, cached_pico, output_pico, source)
    SELECT s.request, 2, 'overage', ledger_payer(s.organization, s.budgets::uuid[]),
           'revenue:' || s.model, s.amount - s.held, s.organization, s.project, s.key, s.model,
           s.version, s.input, s.cached, s.output, s.source
    FROM unnest(p_request, p_organization, p_project, p_key, p_held, p_amount, p_model, p_version,
                p_input, p_cached, p_output, p_source, p_budgets)
             AS s(request, organization, project, key, held, amount, model, version, input, cached,
                  output, source, budgets)
    WHERE s.held > 0 AND s.amount > s.held
    ORDER BY s.request;
END $$;

-- Called by the function after it, under its settings.
CREATE OR REPLACE FUNCTION ledger_book_settlements(
    p_request uuid[], p_organization uuid[], p_project uuid[], p_key uuid[], p_held bigint[],
    p_amount bigint[], p_model text[], p_version integer[], p_input bigint[], p_cached bigint[],
    p_output bigint[], p_tokens text[], p_source text[], p_budgets text[]
) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO transfers (request, slot, kind, debit, credit, amount, organization, project, key,
                           model, price_version, input_pico, cached_pico, output_pico, uncached,
                           cached, output, source)
    SELECT s.request, 1, CASE WHEN s.amount = 0 THEN 'release' ELSE 'settle' END,
           ledger_payer(s.organization, CASE WHEN s.held > 0 THEN s.budgets END),
           'revenue:' || s.model, ledger_resolved(s.held, s.amount), s.organization, s.project,
           s.key, s.model, s.version, s.input, s.cached, s.output, s.tokens[1], s.tokens[2],
           s.tokens[3], s.source
    FROM (SELECT unnest(p_request) AS request, unnest(p_organization) AS organization,
                 unnest(p_project) AS project, unnest(p_key) AS key, unnest(p_held) AS held,
                 unnest(p_amount) AS amount, unnest(p_model) AS model,
                 unnest(p_version) AS version, unnest(p_input) AS input,
                 unnest(p_cached) AS cached, unnest(p_output) AS output,
                 unnest(p_tokens)::integer[] AS tokens, unnest(p_source) AS source,
                 unnest(p_budgets)::uuid[] AS budgets) AS s;
    PERFORM ledger_book_overages(p_request, p_organization, p_project, p_key, p_held, p_amount,
                                 p_model, p_version, p_input, p_cached, p_output, p_source,
                                 p_budgets);
END $$;

CREATE OR REPLACE FUNCTION ledger_settle_exact(
    p_request uuid[], p_organization uuid[], p_project uuid[], p_key uuid[], p_held bigint[],
    p_amount bigint[], p_model text[], p_version integer[], p_input bigint[], p_cached bigint[],
    p_output bigint[], p_tokens text[], p_source text[], p_budgets text[]
) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp
SET plan_cache_mode = force_custom_plan AS $$
DECLARE
    codes text[] := '{}';
    v_code text;
    v_held bigint;
    v_mine uuid[];
    v_resolution text;
BEGIN
    -- Holds before budgets, each in one order, as the other functions lock them.
    PERFORM 1 FROM open_holds WHERE request = ANY (p_request) ORDER BY request FOR UPDATE;
    PERFORM 1 FROM budgets
    WHERE id IN (SELECT unnest(b::uuid[]) FROM unnest(p_budgets) AS b
                 UNION SELECT unnest(o.budgets) FROM open_holds o WHERE o.request = ANY (p_request))
    ORDER BY id FOR UPDATE;
    FOR i IN 1 .. cardinality(p_request) LOOP
        DELETE FROM open_holds o WHERE o.request = p_request[i] RETURNING o.amount, o.budgets
            INTO v_held, v_mine;
        IF FOUND THEN
            v_code := 'open';
        ELSE
            v_held := p_held[i];
            v_mine := p_budgets[i]::uuid[];
            v_resolution := ledger_resolution(p_request[i]);
            v_code := CASE WHEN v_resolution IS NULL THEN 'lost'
                         WHEN v_resolution = 'expire' AND p_amount[i] > 0 THEN 'late'
                         ELSE 'already' END;
        END IF;
        IF v_code = 'lost' AND v_held > 0 THEN
            -- The hold was promised but lost with a crash: book it now, so that the books are whole.
            UPDATE budgets AS b SET held = b.held + p_held[i],
                                    over = greatest(b.over, b.posted + b.held + p_held[i] - b.lim)
            WHERE b.id = ANY (v_mine);
            PERFORM ledger_book_holds(
                p_request[i:i], p_organization[i:i], p_project[i:i], p_key[i:i], p_held[i:i],
                p_model[i:i], p_version[i:i], p_input[i:i], p_cached[i:i], p_output[i:i],
                ARRAY[0], p_budgets[i:i], NULL, NULL);
            DELETE FROM open_holds o WHERE o.request = p_request[i];
        END IF;
        IF v_code IN ('open', 'lost') THEN
            UPDATE budgets AS b
            SET held = b.held - v_held, posted = b.posted + c.nano,
                over = greatest(b.over, b.posted + c.nano + b.held - b.lim - v_held)
            FROM ledger_charged(v_mine, p_model[i], p_amount[i]) AS c
            WHERE b.id = c.budget AND v_held > 0;
            PERFORM ledger_book_settlements(
                p_request[i:i], p_organization[i:i], p_project[i:i], p_key[i:i], ARRAY[v_held],
                p_amount[i:i], p_model[i:i], p_version[i:i], p_input[i:i], p_cached[i:i],
                p_output[i:i], p_tokens[i:i], p_source[i:i], ARRAY[v_mine::text]);
        ELSIF v_code = 'late' THEN
            PERFORM ledger_book_late(p_request[i], p_amount[i], p_model[i], p_version[i],
                                     p_input[i], p_cached[i], p_output[i],
                                     p_tokens[i]::integer[], p_source[i]);
        END IF;
        codes := codes || v_code;
    END LOOP;
    RETURN array_to_string(codes, E'\n');
END $$;

-- What each budget of a hold is charged: of those of single models the one of the model that served.
CREATE OR REPLACE FUNCTION ledger_charged(mine uuid[], p_model text, p_nano bigint)
RETURNS TABLE (budget uuid, nano bigint)
LANGUAGE sql STABLE SET search_path = public, pg_temp AS $$
    SELECT m.id, CASE WHEN p.model <> p_model THEN 0 ELSE p_nano END
    FROM unnest(mine) AS m(id) LEFT JOIN budget_parts p ON p.budget = m.id
$$;

-- How a request was resolved: the kind of slot 1, or 'late' once slot 2 followed an expiry.
CREATE OR REPLACE FUNCTION ledger_resolution(wanted uuid) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = public, pg_temp
SET plan_cache_mode = force_custom_plan AS $$
BEGIN
    RETURN (SELECT t.kind FROM transfers t
            WHERE t.request = wanted AND t.kind IN ('settle', 'release', 'expire', 'late')
            ORDER BY t.slot DESC LIMIT 1);
END $$;

-- A charge that comes after its hold expired, on the hold's own budgets.
CREATE OR REPLACE FUNCTION ledger_book_late(
    wanted uuid, p_amount bigint, p_model text, p_version integer, p_input bigint,
    p_cached bigint, p_output bigint, p_tokens integer[], p_source text
) RETURNS void
LANGUAGE plpgsql SET search_path = public, pg_temp SET plan_cache_mode = force_custom_plan AS $$
DECLARE
    mine uuid[];
BEGIN
    INSERT INTO transfers (request, slot, kind, debit, credit, amount, organization, project, key,
                           model, price_version, input_pico, cached_pico, output_pico, uncached,
                           cached, output, source)
    SELECT t.request, 2, 'late', t.debit, 'revenue:' || p_model, p_amount, t.organization,
           t.project, t.key, p_model, p_version, p_input, p_cached, p_output, p_tokens[1],
           p_tokens[2], p_tokens[3], p_source
    FROM transfers t WHERE t.request = wanted AND t.slot = 0;
    SELECT t.budgets INTO mine FROM transfers t WHERE t.request = wanted AND t.slot = 0;
    PERFORM 1 FROM budgets WHERE id = ANY (mine) ORDER BY id FOR UPDATE;
    UPDATE budgets AS b SET posted = b.posted + c.nano,
                            over = greatest(b.over, b.posted + c.nano + b.held - b.lim)
    FROM ledger_charged(mine, p_model, p_amount) AS c WHERE b.id = c.budget;
END $$;

-- What the ledger knows of a request, as JSON: its terms (from the hold) and how it was resolved. Whom
-- it is for stays with the hold.
CREATE OR REPLACE FUNCTION ledger_open(wanted uuid) RETURNS text
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = public, pg_temp
SET plan_cache_mode = force_custom_plan AS $$
BEGIN
    RETURN (
        SELECT json_build_object(
            'resolution', ledger_resolution(wanted), 'organization', t.organization,
            'project', t.project, 'key', t.key, 'amount', t.amount, 'model', t.model,
            'budgets', t.budgets, 'version', t.price_version, 'input_pico', t.input_pico,
            'cached_pico', t.cached_pico, 'output_pico', t.output_pico, 'others', t.others - '')
        FROM transfers t WHERE t.request = wanted AND t.slot = 0);
END $$;

GRANT EXECUTE ON FUNCTION ledger_settle, ledger_settle_exact, ledger_open TO sluice_gateway;
