-- Lines: read from their file, taken by gateways, and answered exactly once. `me` is the gateway that
-- asks; what one has that no longer lives is anybody's.

CREATE OR REPLACE FUNCTION batches_lost(owner text, me text) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT owner IS NULL
        OR (owner <> me AND NOT EXISTS (SELECT 1 FROM gateways g WHERE g.instance = owner))
$$;

-- What there is to do: whether a file is being read, and the models that lines wait for. Goes on with
-- one batch that is to be read or to end, whose results get the ids told. Lines of `me` that are not
-- among the requests `running` are anybody's: their claim was never heard of, or they were cut off.
CREATE OR REPLACE FUNCTION batches_turn(p jsonb) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    b batches;
BEGIN
    UPDATE batch_lines SET gateway = NULL
    WHERE gateway = p->>'me' AND ok IS NULL AND NOT p->'running' ? request::text;
    SELECT * INTO b FROM batches i
    WHERE i.ended_at IS NULL AND (i.status <> 'in_progress' OR i.expires_at <= batches_now()
                                  OR i.completed + i.failed = i.total)
    ORDER BY random() LIMIT 1 FOR UPDATE SKIP LOCKED;
    IF b.status = 'validating' AND b.expires_at > batches_now() THEN
        PERFORM batches_read_on(b, (p->>'lines_max')::integer, (p->>'errors_max')::integer);
    ELSIF FOUND THEN
        PERFORM batches_end(b, p);
    END IF;
    RETURN jsonb_build_object('reading', b.status IS NOT DISTINCT FROM 'validating', 'models', ARRAY(
        SELECT DISTINCT unnest(i.models) FROM batches i WHERE i.status = 'in_progress'));
END $$;

-- A text as JSON that PostgreSQL can keep, else null.
CREATE OR REPLACE FUNCTION batches_json(line text) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN line::jsonb;
EXCEPTION WHEN OTHERS THEN
    RETURN NULL;
END $$;

-- Read the next part of a batch's file. Behind the last its lines begin, or with errors it has failed.
CREATE OR REPLACE FUNCTION batches_read_on(b batches, lines_max integer, errors_max integer)
RETURNS void LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    part batch_parts;
BEGIN
    SELECT * INTO part FROM batch_parts s WHERE s.file = b.input_file_id AND s.number > b.parts_read
    ORDER BY s.number LIMIT 1;
    IF FOUND AND jsonb_array_length(b.errors) < errors_max AND b.total <= lines_max THEN
        WITH lines AS MATERIALIZED (
            SELECT b.lines_read + n AS number, t AS line, batches_json(ltrim(t, U&'\FEFF')) AS j
            FROM string_to_table(part.data, E'\n') WITH ORDINALITY AS s(t, n)
        ), checked AS (
            SELECT l.*, CASE
                WHEN jsonb_typeof(j) IS DISTINCT FROM 'object'
                    THEN '{invalid_json_line,"",This line is not a JSON object.}'
                WHEN jsonb_typeof(j->'custom_id') IS DISTINCT FROM 'string'
                     OR length(j->>'custom_id') NOT BETWEEN 1 AND 512
                    THEN '{invalid_request,custom_id,A custom_id has 1 to 512 characters.}'
                WHEN j->>'method' IS DISTINCT FROM 'POST'
                    THEN '{invalid_method,method,The method must be POST.}'
                WHEN j->>'url' IS DISTINCT FROM b.endpoint
                    THEN '{invalid_url,url,The url must be the endpoint of the batch.}'
                WHEN jsonb_typeof(j->'body'->'model') IS DISTINCT FROM 'string'
                    THEN '{missing_required_parameter,body.model,A body names its model.}'
                WHEN j->'body'->'stream' = 'true'
                    THEN '{invalid_request,body.stream,A batch does not stream.}'
                WHEN j->'body'->'background' = 'true'
                    THEN '{invalid_request,body.background,A batch waits for its answers.}'
                END::text[] AS error
            FROM lines l WHERE btrim(line, E' \t\r') <> ''
        ), added AS (
            INSERT INTO batch_lines (batch, number, custom_id, model, body)
            SELECT b.id, number, j->>'custom_id', j->'body'->>'model',
                   ltrim(line, U&'\FEFF')::json->>'body'
            FROM checked WHERE error IS NULL ON CONFLICT DO NOTHING RETURNING number, model
        ), bad AS (
            SELECT number, coalesce(error, '{duplicate_custom_id,custom_id,'
                                           'This custom_id was used before in this file.}') AS error
            FROM checked WHERE number NOT IN (SELECT number FROM added)
            ORDER BY number LIMIT errors_max - jsonb_array_length(b.errors)
        )
        UPDATE batches i
        SET parts_read = part.number, lines_read = (SELECT max(number) FROM lines) - 1,
            total = i.total + (SELECT count(*) FROM added), models = ARRAY(
                SELECT unnest(i.models) UNION SELECT model FROM added),
            errors = i.errors || (SELECT coalesce(jsonb_agg(jsonb_build_object('line', number,
                'code', error[1], 'param', nullif(error[2], ''), 'message', error[3])), '[]') FROM bad)
        WHERE i.id = b.id;
        RETURN;
    END IF;
    UPDATE batches i
    SET errors = CASE
        WHEN NOT EXISTS (SELECT 1 FROM batch_files f WHERE f.id = b.input_file_id)
            THEN '[{"code": "file_not_found", "message": "The input file was deleted."}]'
        WHEN b.total > lines_max OR cardinality(b.models) > 64
            THEN '[{"code": "invalid_request", "message": "Too many requests or models."}]'
        WHEN b.total = 0 AND b.errors = '[]'
            THEN '[{"code": "empty_file", "message": "The input file has no requests."}]'
        ELSE b.errors END
    WHERE i.id = b.id RETURNING * INTO b;
    UPDATE batches i
    SET status = CASE b.errors WHEN '[]' THEN 'in_progress' ELSE 'failed' END,
        in_progress_at = CASE b.errors WHEN '[]' THEN batches_now() END,
        failed_at = CASE b.errors WHEN '[]' THEN NULL ELSE batches_now() END,
        ended_at = CASE b.errors WHEN '[]' THEN NULL ELSE batches_now() END
    WHERE i.id = b.id;
    DELETE FROM batch_lines WHERE batch = b.id AND b.errors <> '[]';
END $$;

-- Lines that nobody runs are cut off; once none is left, so is the batch.
CREATE OR REPLACE FUNCTION batches_end(b batches, p jsonb) RETURNS void
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    cut text := CASE b.status WHEN 'cancelling' THEN 'cancelled' ELSE 'expired' END;
    told text := CASE cut WHEN 'cancelled' THEN 'The batch was cancelled before this request began.'
        ELSE 'This request could not be executed before the completion window expired.' END;
BEGIN
    IF b.in_progress_at IS NULL THEN
        DELETE FROM batch_lines WHERE batch = b.id;
    ELSIF b.completed + b.failed < b.total THEN
        WITH cut_off AS (
            UPDATE batch_lines l SET ok = false, body = '', result = json_build_object(
                'id', format('batch_req_%s_%s', substr(b.id, 7), l.number), 'custom_id', l.custom_id,
                'response', NULL, 'error', json_build_object('code', 'batch_' || cut, 'message', told)
            )::text
            WHERE l.batch = b.id AND l.number IN (
                SELECT i.number FROM batch_lines i WHERE i.batch = b.id AND i.ok IS NULL
                AND batches_lost(i.gateway, '') LIMIT (p->>'rows_max')::integer FOR UPDATE)
            RETURNING octet_length(l.result) + 1 AS bytes
        ), ended AS (SELECT count(*) AS lines, coalesce(sum(bytes), 0) AS bytes FROM cut_off)
        UPDATE batches i
        SET failed = i.failed + e.lines, error_bytes = i.error_bytes + e.bytes,
            status = CASE cut WHEN 'expired' THEN 'finalizing' ELSE i.status END,
            finalizing_at = CASE cut WHEN 'expired' THEN coalesce(i.finalizing_at, batches_now()) END
        FROM ended e WHERE i.id = b.id RETURNING i.* INTO b;
        IF b.completed + b.failed < b.total THEN
            RETURN;
        END IF;
    ELSIF b.status = 'in_progress' THEN
        cut := 'completed';
    END IF;
    INSERT INTO batch_files (id, organization, project, filename, purpose, bytes, batch, failures,
                             expires_at)
    SELECT f.id, b.organization, b.project, b.id || f.ending, 'batch_output', f.bytes, b.id,
           f.failures, batches_now() + (p->>'kept_s')::integer
    FROM (VALUES (p->>'output', '_output.jsonl', b.output_bytes, false),
                 (p->>'error', '_error.jsonl', b.error_bytes, true)) AS f(id, ending, bytes, failures)
    WHERE f.bytes > 0;
    UPDATE batches i
    SET output_file_id = CASE WHEN b.output_bytes > 0 THEN p->>'output' END,
        error_file_id = CASE WHEN b.error_bytes > 0 THEN p->>'error' END,
        status = cut, ended_at = batches_now(),
        finalizing_at = CASE WHEN cut <> 'cancelled' THEN coalesce(i.finalizing_at, batches_now()) END,
        completed_at = CASE cut WHEN 'completed' THEN batches_now() END,
        expired_at = CASE cut WHEN 'expired' THEN batches_now() END,
        cancelled_at = CASE cut WHEN 'cancelled' THEN batches_now() END
    WHERE i.id = b.id;
END $$;

-- Take lines, at most so many of each model as it has slots; organizations take turns. A line that was
-- run before without a result gets a new request, whose charge is its only one: what the run before
-- still holds is released first, which nothing can settle from then on. Where that run was charged
-- already the request stays the same, so that this run is not.
CREATE OR REPLACE FUNCTION batches_claim(p jsonb) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp
SET plan_cache_mode = force_custom_plan AS $$
DECLARE
    ours batch_lines[];
    charged uuid[];
    taken jsonb;
BEGIN
    WITH found AS (
        SELECT l.line, w.model, w.slots, row_number() OVER (
            PARTITION BY w.model, b.organization ORDER BY b.id, (l.line).number) AS turn
        FROM jsonb_to_recordset(p->'slots') AS w(model text, slots integer)
        JOIN batches b ON b.status = 'in_progress' AND b.expires_at > batches_now()
                      AND w.model = ANY (b.models)
        CROSS JOIN LATERAL (
            SELECT i AS line FROM batch_lines i
            WHERE i.batch = b.id AND i.model = w.model AND i.ok IS NULL
              AND i.due_at <= clock_timestamp() AND batches_lost(i.gateway, p->>'me')
            ORDER BY i.number LIMIT w.slots FOR UPDATE SKIP LOCKED) AS l
    ), ranked AS (
        SELECT line, slots, row_number() OVER (PARTITION BY model ORDER BY turn, random()) AS place
        FROM found
    )
    SELECT array_agg(line) INTO ours FROM ranked WHERE place <= slots;
    PERFORM ledger_settle_exact(
        array_agg(o.request), array_agg(o.organization), array_agg(o.project), array_agg(o.key),
        array_agg(o.amount), array_agg(0::bigint), array_agg(o.model), array_agg(o.price_version),
        array_agg(o.input_pico), array_agg(o.cached_pico), array_agg(o.output_pico),
        array_agg('{0,0,0}'::text), array_agg('gateway'::text), array_agg(o.budgets::text))
    FROM open_holds o JOIN unnest(ours) AS l ON o.request = l.request HAVING count(*) > 0;
    charged := ARRAY(SELECT l.request FROM unnest(ours) AS l WHERE l.request IS NOT NULL
                     AND ledger_resolution(l.request) IN ('settle', 'late'));
    WITH mine AS (
        UPDATE batch_lines l
        SET gateway = p->>'me', tries = l.tries + 1, request = CASE
            WHEN l.request = ANY (charged) THEN l.request ELSE (p->'requests'->>c.place)::uuid END
        FROM (SELECT batch, number, row_number() OVER ()::integer - 1 AS place FROM unnest(ours)) AS c,
             batches b
        WHERE l.batch = c.batch AND l.number = c.number AND b.id = c.batch
        RETURNING to_jsonb(l) || jsonb_build_object('key_id', b.key_id, 'endpoint', b.endpoint,
            'charged', l.request = ANY (charged)) AS line
    ) SELECT coalesce(jsonb_agg(line), '[]') INTO taken FROM mine;
    RETURN taken;
END $$;

-- What became of a line, once: of who else ran it nothing is kept. Without `ok` it is to be tried
-- again in `after_s`.
CREATE OR REPLACE FUNCTION batches_done(p jsonb) RETURNS jsonb
LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp AS $$
    WITH done AS (
        UPDATE batch_lines l
        SET ok = (p->>'ok')::boolean, result = p->>'result', gateway = NULL,
            body = CASE WHEN p->>'ok' IS NULL THEN l.body ELSE '' END,
            due_at = clock_timestamp() + make_interval(secs => (p->>'after_s')::double precision)
        WHERE l.batch = p->>'batch' AND l.number = (p->>'number')::integer
          AND l.request = (p->>'request')::uuid AND l.ok IS NULL
        RETURNING l.batch, l.ok, octet_length(l.result) + 1 AS size
    )
    UPDATE batches b
    SET completed = b.completed + d.ok::integer, failed = b.failed + (NOT d.ok)::integer,
        output_bytes = b.output_bytes + CASE WHEN d.ok THEN d.size ELSE 0 END,
        error_bytes = b.error_bytes + CASE WHEN d.ok THEN 0 ELSE d.size END
    FROM done d WHERE b.id = d.batch AND d.ok IS NOT NULL RETURNING to_jsonb(true)
$$;

GRANT EXECUTE ON FUNCTION batches_turn, batches_claim, batches_done TO sluice_gateway;
