-- Holds. `ledger_hold` is the path of every request: one ordered UPDATE with summed demand locks,
-- tests and takes; only where a budget runs short are requests admitted one by one, in order of
-- arrival. It raises on a repeated id; the caller then repeats the batch through
-- `ledger_hold_exact`, which decides each request from the rows.
-- `p_others` is NULL where no request of the batch may be served by several models.
-- Both return NULL when all are admitted, else one line per request: '' or '<scope>:<budget>'.

-- The two index settings force a nested loop that visits budgets in the order of the sorted demand:
-- every transaction locks in one order, so that no two can deadlock.
CREATE OR REPLACE FUNCTION ledger_hold(
    p_request uuid[], p_organization uuid[], p_project uuid[], p_key uuid[], p_amount bigint[],
    p_model text[], p_version integer[], p_input bigint[], p_cached bigint[], p_output bigint[],
    p_expires_s integer[], p_budgets text[], p_others jsonb[]
) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp
SET plan_cache_mode = force_generic_plan SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashagg = off AS $$
DECLARE
    v_fits boolean;
    v_took uuid[];
    v_short uuid[];
    v_codes text[];
BEGIN
    WITH asked AS MATERIALIZED (
        SELECT unnest(p_request) AS request, unnest(p_organization) AS organization,
               unnest(p_project) AS project, unnest(p_key) AS key, unnest(p_amount) AS amount,
               unnest(p_model) AS model, unnest(p_version) AS version, unnest(p_input) AS input,
               unnest(p_cached) AS cached, unnest(p_output) AS output,
               unnest(p_expires_s) AS expires_s, unnest(p_budgets)::uuid[] AS budgets,
               unnest(p_others) AS others
        ORDER BY 1
    ), demand AS MATERIALIZED (
        SELECT m.id, sum(m.amount)::bigint AS need
        FROM (SELECT unnest(a.budgets) AS id, a.amount FROM asked a) AS m
        GROUP BY m.id ORDER BY m.id
    ), taken AS (
        UPDATE budgets AS b
        SET short = b.lim - b.posted - b.held < d.need,
            held = b.held + CASE WHEN b.lim - b.posted - b.held < d.need THEN 0 ELSE d.need END
        FROM demand d WHERE b.id = d.id
        RETURNING b.id, b.short
    ), found AS MATERIALIZED (
        SELECT count(*) FILTER (WHERE NOT t.short) = (SELECT count(*) FROM demand) AS fits,
               array_agg(t.id) FILTER (WHERE NOT t.short) AS took
        FROM taken t
    ), opened AS (
        INSERT INTO open_holds (request, organization, project, key, amount, model, price_version,
                                input_pico, cached_pico, output_pico, expires_at, budgets, others)
        SELECT a.request, a.organization, a.project, a.key, a.amount, a.model, a.version, a.input,
               a.cached, a.output, clock_timestamp() + a.expires_s * interval '1 second',
               a.budgets, a.others
        FROM asked a WHERE (SELECT fits FROM found)
    ), booked AS (
        INSERT INTO transfers (request, slot, kind, debit, credit, amount, organization, project,
                               key, model, price_version, input_pico, cached_pico, output_pico,
                               budgets, others)
        SELECT a.request, 0, 'hold', ledger_payer(a.organization, a.budgets),
               'revenue:' || a.model, a.amount, a.organization, a.project, a.key, a.model,
               a.version, a.input, a.cached, a.output, a.budgets, a.others
        FROM asked a WHERE (SELECT fits FROM found)
    )
    SELECT fits, coalesce(took, '{}') INTO v_fits, v_took FROM found;
    IF v_fits THEN
        RETURN NULL;
    END IF;

    -- A repeat must not be refused for want of the room that it holds itself.
    IF EXISTS (SELECT 1 FROM open_holds WHERE request = ANY (p_request)) THEN
        RAISE EXCEPTION 'a hold of this batch is open already' USING ERRCODE = 'SL001';
    END IF;
    SELECT array_agg(DISTINCT m.id) INTO v_short
    FROM unnest(p_budgets) AS h(budgets), unnest(h.budgets::uuid[]) AS m(id)
    WHERE m.id <> ALL (v_took);
    v_codes := ledger_admit(p_amount, p_budgets, v_short);
    PERFORM ledger_book_holds(p_request, p_organization, p_project, p_key, p_amount, p_model,
                              p_version, p_input, p_cached, p_output, p_expires_s, p_budgets,
                              p_others, v_codes);
    RETURN array_to_string(v_codes, E'\n');
END $$;

-- One by one: `short` budgets took nothing of the batch's demand, all others took all of theirs.
CREATE OR REPLACE FUNCTION ledger_admit(p_amount bigint[], p_budgets text[], short_ids uuid[])
RETURNS text[]
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    rooms bigint[];
    scopes text[];
    codes text[] := '{}';
    code text;
    budget uuid;
    place integer;
BEGIN
    SELECT array_agg(coalesce(b.lim - b.posted - b.held, -1) ORDER BY s.place),
           array_agg(coalesce(b.scope, 'unknown') ORDER BY s.place)
    INTO rooms, scopes
    FROM unnest(short_ids) WITH ORDINALITY AS s(id, place) LEFT JOIN budgets b ON b.id = s.id;

    FOR i IN 1 .. cardinality(p_amount) LOOP
        code := '';
        FOREACH budget IN ARRAY p_budgets[i]::uuid[] LOOP
            place := array_position(short_ids, budget);
            IF place IS NOT NULL AND rooms[place] < p_amount[i] THEN
                code := scopes[place] || ':' || budget;
                EXIT;
            END IF;
        END LOOP;
        codes := codes || code;
        CONTINUE WHEN code <> '';
        FOREACH budget IN ARRAY p_budgets[i]::uuid[] LOOP
            place := array_position(short_ids, budget);
            IF place IS NOT NULL THEN
                rooms[place] := rooms[place] - p_amount[i];
            END IF;
        END LOOP;
    END LOOP;

    -- All rows are locked already: the admitted are added where short, the refused taken back where not.
    UPDATE budgets AS b SET held = b.held + d.change
    FROM (
        SELECT m.id, sum(CASE WHEN m.id = ANY (short_ids) THEN h.amount ELSE -h.amount END) AS change
        FROM unnest(p_amount, p_budgets, codes) AS h(amount, budgets, code),
             unnest(h.budgets::uuid[]) AS m(id)
        WHERE (h.code = '') = (m.id = ANY (short_ids))
        GROUP BY m.id
    ) AS d
    WHERE b.id = d.id;
    RETURN codes;
END $$;

-- The budget that is an organization's prepaid wallet, whether it has one or not: the same id with a
-- version that no id has. (A hash costs as much as half a hold.)
CREATE OR REPLACE FUNCTION ledger_wallet(organization uuid) RETURNS uuid
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT overlay(organization::text PLACING 'f' FROM 15 FOR 1)::uuid
$$;

-- The account that a request's lines debit: the wallet where it is among the request's budgets.
-- Both are plain expressions, which PostgreSQL puts into the statements that call them.
CREATE OR REPLACE FUNCTION ledger_payer(organization uuid, budgets uuid[]) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN ledger_wallet(organization) = ANY (budgets) THEN 'wallet:'
                ELSE 'receivable:' END || organization::text
$$;

-- Called by the functions around it, under their settings.
CREATE OR REPLACE FUNCTION ledger_book_holds(
    p_request uuid[], p_organization uuid[], p_project uuid[], p_key uuid[], p_amount bigint[],
    p_model text[], p_version integer[], p_input bigint[], p_cached bigint[], p_output bigint[],
    p_expires_s integer[], p_budgets text[], p_others jsonb[], p_codes text[]
) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    WITH opened AS (
        INSERT INTO open_holds (request, organization, project, key, amount, model, price_version,
                                input_pico, cached_pico, output_pico, expires_at, budgets, others)
        SELECT h.request, h.organization, h.project, h.key, h.amount, h.model, h.version, h.input,
               h.cached, h.output, clock_timestamp() + h.expires_s * interval '1 second',
               h.budgets::uuid[], h.others
        FROM unnest(p_request, p_organization, p_project, p_key, p_amount, p_model, p_version,
                    p_input, p_cached, p_output, p_expires_s, p_budgets, p_others)
             WITH ORDINALITY AS h(request, organization, project, key, amount, model, version,
                                  input, cached, output, expires_s, budgets, others, place)
        WHERE p_codes IS NULL OR p_codes[h.place] = ''
        ORDER BY h.request
        RETURNING *
    )
    INSERT INTO transfers (request, slot, kind, debit, credit, amount, organization, project, key,
                           model, price_version, input_pico, cached_pico, output_pico, budgets,
                           others)
    SELECT o.request, 0, 'hold', ledger_payer(o.organization, o.budgets), 'revenue:' || o.model,
           o.amount, o.organization, o.project, o.key, o.model, o.price_version, o.input_pico,
           o.cached_pico, o.output_pico, o.budgets, o.others
    FROM opened o;
END $$;

-- The exact path: a hold that is open or already resolved counts as admitted. `p_force` replays
-- holds that were promised before a crash, also where others have taken their room since.
CREATE OR REPLACE FUNCTION ledger_hold_exact(
    p_request uuid[], p_organization uuid[], p_project uuid[], p_key uuid[], p_amount bigint[],
    p_model text[], p_version integer[], p_input bigint[], p_cached bigint[], p_output bigint[],
    p_expires_s integer[], p_budgets text[], p_others jsonb[], p_force boolean
) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp
SET plan_cache_mode = force_custom_plan AS $$
DECLARE
    codes text[] := '{}';
    mine uuid[];
    code text;
BEGIN
    PERFORM 1 FROM budgets
    WHERE id IN (SELECT unnest(b::uuid[]) FROM unnest(p_budgets) AS b) ORDER BY id FOR UPDATE;
    FOR i IN 1 .. cardinality(p_request) LOOP
        mine := p_budgets[i]::uuid[];
        code := '';
        IF NOT ledger_known(p_request[i]) THEN
            IF NOT p_force THEN
                SELECT coalesce(b.scope, 'unknown') || ':' || m.id INTO code
                FROM unnest(mine) WITH ORDINALITY AS m(id, place)
                     LEFT JOIN budgets b ON b.id = m.id
                WHERE coalesce(b.lim - b.posted - b.held, -1) < p_amount[i]
                ORDER BY m.place LIMIT 1;
                code := coalesce(code, '');
            END IF;
            IF code = '' THEN
                UPDATE budgets SET held = held + p_amount[i],
                                   over = greatest(over, posted + held + p_amount[i] - lim)
                WHERE id = ANY (mine);
                PERFORM ledger_book_holds(
                    p_request[i:i], p_organization[i:i], p_project[i:i], p_key[i:i],
                    p_amount[i:i], p_model[i:i], p_version[i:i], p_input[i:i], p_cached[i:i],
                    p_output[i:i], p_expires_s[i:i], p_budgets[i:i], p_others[i:i], NULL);
            END IF;
        END IF;
        codes := codes || code;
    END LOOP;
    RETURN array_to_string(codes, E'\n');
END $$;

-- Whether a request has a line. Custom plans only: a generic one would lock every partition.
CREATE OR REPLACE FUNCTION ledger_known(wanted uuid) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = public, pg_temp
SET plan_cache_mode = force_custom_plan AS $$
BEGIN
    RETURN EXISTS (SELECT 1 FROM transfers WHERE request = wanted);
END $$;

GRANT EXECUTE ON FUNCTION ledger_hold, ledger_hold_exact TO sluice_gateway;
