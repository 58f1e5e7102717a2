-- What the jobs call: expiry of holds, seals over closed time, and the comparison of counters.

-- Holds whose time is over are voided; at most `holds_max` of them. Returns how many, and how much.
CREATE OR REPLACE FUNCTION ledger_expire(holds_max integer, OUT holds integer, OUT nano bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    due uuid[];
BEGIN
    SELECT array_agg(d.request), count(*), coalesce(sum(d.amount), 0) INTO due, holds, nano
    FROM (SELECT o.request, o.amount FROM open_holds o
          WHERE o.expires_at <= clock_timestamp() ORDER BY o.request LIMIT holds_max
          FOR UPDATE SKIP LOCKED) AS d;
    IF holds = 0 THEN
        RETURN;
    END IF;
    PERFORM 1 FROM budgets
    WHERE id IN (SELECT unnest(o.budgets) FROM open_holds o WHERE o.request = ANY (due))
    ORDER BY id FOR UPDATE;
    UPDATE budgets AS b SET held = b.held - d.amount
    FROM (SELECT m.id, sum(o.amount) AS amount
          FROM open_holds o, unnest(o.budgets) AS m(id)
          WHERE o.request = ANY (due) GROUP BY m.id) AS d
    WHERE b.id = d.id;
    WITH gone AS (DELETE FROM open_holds WHERE request = ANY (due) RETURNING *)
    INSERT INTO transfers (request, slot, kind, debit, credit, amount, organization, project, key,
                           model, price_version, input_pico, cached_pico, output_pico)
    SELECT g.request, 1, 'expire', ledger_payer(g.organization, g.budgets), 'revenue:' || g.model,
           g.amount, g.organization, g.project, g.key, g.model, g.price_version, g.input_pico,
           g.cached_pico, g.output_pico
    FROM gone g ORDER BY g.request;
END $$;

-- Seals one range that ends before `until`, of at most about `rows_max` rows; returns its rows.
-- `until` must lie further back than any transaction can last. Requests book within `days_max`
-- days of their id, which is what keeps the scan to a few partitions.
CREATE OR REPLACE FUNCTION ledger_seal(until timestamptz, rows_max integer, days_max integer)
RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp
SET plan_cache_mode = force_custom_plan AS $$
DECLARE
    last ledger_seals;
    opens timestamptz;
    closes timestamptz;
    floor_id uuid;
    made ledger_seals;
    line_tags bytea;
BEGIN
    -- One sealer at a time; the loser of the race finds nothing left to do.
    PERFORM pg_advisory_xact_lock(hashtext('ledger_seal'));
    SELECT * INTO last FROM ledger_seals ORDER BY number DESC LIMIT 1;
    opens := coalesce(last.to_at, '-infinity');
    floor_id := CASE WHEN last.to_at IS NULL THEN request_floor('epoch')
                     ELSE request_floor(last.to_at - days_max * interval '1 day') END;
    SELECT min(t.booked_at) INTO opens FROM transfers t
    WHERE t.request >= floor_id AND t.booked_at >= opens AND t.booked_at < until;
    IF opens IS NULL THEN
        RETURN 0;
    END IF;
    -- A cut never splits rows of one moment: it falls before the first row that is too many.
    SELECT b.booked_at INTO closes FROM (
        SELECT t.booked_at FROM transfers t
        WHERE t.request >= floor_id AND t.booked_at >= opens AND t.booked_at < until
        ORDER BY t.booked_at OFFSET rows_max LIMIT 1) AS b WHERE b.booked_at > opens;
    closes := coalesce(closes, until);

    made.number := coalesce(last.number, 0) + 1;
    made.from_at := coalesce(last.to_at, opens);
    made.to_at := closes;
    made.previous := coalesce(last.digest, sha256(''));
    -- Beside the digest four bytes of each line's own, by which the first line that differs is found.
    SELECT count(*), sum(l.amount),
           sha256(made.previous || convert_to(string_agg(l.line, E'\n' ORDER BY l.place), 'UTF8')),
           string_agg(substr(sha256(convert_to(l.line, 'UTF8')), 1, 4), '' ORDER BY l.place)
    INTO made.rows, made.amount, made.digest, line_tags
    FROM (
        SELECT t.amount, ledger_line(t) AS line,
               row_number() OVER (ORDER BY t.booked_at, t.request, t.slot) AS place
        FROM transfers t
        WHERE t.request >= floor_id AND t.booked_at >= opens AND t.booked_at < closes
    ) AS l;
    INSERT INTO ledger_seals (number, from_at, to_at, rows, amount, previous, digest, tags)
    VALUES (made.number, made.from_at, made.to_at, made.rows, made.amount, made.previous,
            made.digest, line_tags);
    -- In the seal's own transaction: a line is in the hours exactly when it is sealed.
    PERFORM ledger_hours_add(floor_id, opens, closes);
    RETURN made.rows;
END $$;

-- One transfer as the text that seals hash: every column, in a fixed order; the last only where it
-- has a value, so that lines from before it was there keep their text.
CREATE OR REPLACE FUNCTION ledger_line(t transfers) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT concat_ws('|', t.request, t.slot, t.kind, t.debit, t.credit, t.amount, t.organization,
                     t.project, t.key, t.model, t.price_version, t.input_pico, t.cached_pico,
                     t.output_pico, t.uncached, t.cached, t.output, t.source,
                     coalesce(array_to_string(t.budgets, ','), '-'),
                     (extract(epoch FROM t.booked_at) * 1000000)::bigint, t.others)
$$;

-- Budgets whose held counter is not the sum of their open holds, in one statement's view.
CREATE OR REPLACE FUNCTION ledger_held_differences()
RETURNS TABLE (budget uuid, scope text, counted bigint, summed bigint)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT b.id, b.scope, b.held, coalesce(s.total, 0)::bigint
    FROM budgets b LEFT JOIN (
        SELECT m.id, sum(o.amount) AS total FROM open_holds o, unnest(o.budgets) AS m(id)
        GROUP BY m.id
    ) AS s ON s.id = b.id
    WHERE b.held <> coalesce(s.total, 0)
$$;

GRANT EXECUTE ON FUNCTION ledger_expire, ledger_seal, ledger_held_differences TO sluice_app;
