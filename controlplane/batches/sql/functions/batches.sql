-- Files and batches in the words of OpenAI's API: each question takes one JSON object and answers with
-- one value. Who may ask is the gateway's to say; a project is always named.

CREATE OR REPLACE FUNCTION batches_file(f batch_files) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT to_jsonb(f) - '{organization,project,batch,failures}'::text[]
        || '{"object": "file", "status": "processed", "status_details": null}'
$$;

CREATE OR REPLACE FUNCTION batches_batch(b batches) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT to_jsonb(b) - '{organization,project,key_id,key_label,models,total,completed,failed,
                           parts_read,lines_read,output_bytes,error_bytes,ended_at}'::text[]
        || jsonb_build_object('object', 'batch', 'completion_window', '24h', 'errors',
            CASE b.status WHEN 'failed' THEN json_build_object('object', 'list', 'data', b.errors) END,
            'request_counts', json_build_object(
                'total', b.total, 'completed', b.completed, 'failed', b.failed))
$$;

-- Begin an upload; null where the project has as many files or bytes as it may.
CREATE OR REPLACE FUNCTION batches_upload(p jsonb) RETURNS jsonb
LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp AS $$
    INSERT INTO batch_files (id, organization, project, expires_at)
    SELECT p->>'id', (p->>'organization')::uuid, (p->>'project')::uuid, batches_now() + 3600
    FROM (SELECT count(*) AS files, sum(bytes) AS bytes FROM batch_files
          WHERE project = (p->>'project')::uuid) AS kept
    WHERE kept.files < (p->>'files_max')::bigint
      AND coalesce(kept.bytes, 0) < (p->>'bytes_max')::bigint
    RETURNING to_jsonb(true)
$$;

CREATE OR REPLACE FUNCTION batches_part(p jsonb) RETURNS jsonb
LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp AS $$
    INSERT INTO batch_parts (file, number, data)
    VALUES (p->>'id', (p->>'number')::integer, p->>'data') RETURNING to_jsonb(true)
$$;

-- All its parts are here.
CREATE OR REPLACE FUNCTION batches_uploaded(p jsonb) RETURNS jsonb
LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp AS $$
    UPDATE batch_files f
    SET purpose = 'batch', filename = p->>'filename', bytes = (p->>'bytes')::bigint,
        expires_at = f.created_at + (p->>'kept_s')::integer
    WHERE f.id = p->>'id' AND f.purpose = '' RETURNING batches_file(f)
$$;

-- The one of an `id`, or `limit` of them behind `after`.
CREATE OR REPLACE FUNCTION batches_files(p jsonb) RETURNS jsonb
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT coalesce(jsonb_agg(s.shown), '[]') FROM (
        SELECT batches_file(f) AS shown FROM batch_files f
        WHERE f.project = (p->>'project')::uuid AND f.id = coalesce(p->>'id', f.id)
          AND f.purpose = coalesce(p->>'purpose', f.purpose) AND f.purpose <> ''
          AND f.expires_at > batches_now()
          AND CASE p->>'order' WHEN 'asc' THEN f.id > coalesce(p->>'after', '')
                               ELSE f.id < coalesce(p->>'after', 'z') END
        ORDER BY CASE p->>'order' WHEN 'asc' THEN f.id END, f.id DESC
        LIMIT (p->>'limit')::integer) AS s
$$;

-- What is behind part or line `after`, and where it ends: an upload's next part, or results.
CREATE OR REPLACE FUNCTION batches_read(p jsonb) RETURNS jsonb
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    WITH f AS (SELECT * FROM batch_files i WHERE i.id = p->>'id' AND i.project = (p->>'project')::uuid),
    part AS (
        SELECT s.number, s.data FROM f JOIN batch_parts s ON s.file = f.id
        WHERE s.number > (p->>'after')::integer ORDER BY s.number LIMIT 1
    ), line AS (
        SELECT l.number, l.result FROM f JOIN batch_lines l ON l.batch = f.batch
        WHERE l.ok = NOT f.failures AND l.number > (p->>'after')::integer
        ORDER BY l.number LIMIT 256
    ), sized AS (
        SELECT number, result, sum(octet_length(result)) OVER (ORDER BY number) AS size FROM line
    ), found AS (
        SELECT number, data FROM part
        UNION ALL SELECT max(number), string_agg(result || E'\n', '' ORDER BY number) FROM sized
        WHERE size <= 1048576 OR number = (SELECT min(number) FROM line)
    )
    SELECT jsonb_build_object('upto', number, 'data', data) FROM found WHERE data IS NOT NULL
$$;

-- Remove a file of a project, or else `rows_max` whose time is over; results of lines go along, and
-- old batches of which nothing is left. Null where there was none.
CREATE OR REPLACE FUNCTION batches_forget(p jsonb) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    gone text[] := ARRAY(SELECT f.id FROM batch_files f
        WHERE CASE WHEN p ? 'id' THEN f.id = p->>'id' AND f.project = (p->>'project')::uuid
                                      AND f.purpose <> ''
              ELSE f.expires_at <= batches_now() END
        LIMIT (p->>'rows_max')::integer FOR UPDATE SKIP LOCKED);
BEGIN
    DELETE FROM batch_lines l USING batch_files f
    WHERE f.id = ANY (gone) AND l.batch = f.batch AND l.ok = NOT f.failures;
    DELETE FROM batch_files WHERE id = ANY (gone);
    DELETE FROM batches b
    WHERE NOT p ? 'id' AND b.ended_at < batches_now() - (p->>'kept_s')::integer
      AND NOT EXISTS (SELECT 1 FROM batch_files f WHERE f.batch = b.id);
    RETURN to_jsonb(nullif(cardinality(gone), 0));
END $$;

-- Null without its file, false where the project has `open_max` batches that are not over.
CREATE OR REPLACE FUNCTION batches_create(p jsonb) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    b batches;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('batches_create'), hashtext(p->>'project'));
    IF (SELECT count(*) >= (p->>'open_max')::integer FROM batches i
        WHERE i.project = (p->>'project')::uuid AND i.ended_at IS NULL) THEN
        RETURN to_jsonb(false);
    END IF;
    INSERT INTO batches (id, organization, project, key_id, key_label, input_file_id, endpoint,
                         metadata)
    SELECT p->>'id', f.organization, f.project, p->>'key_id', p->>'key_label', f.id,
           p->>'endpoint', nullif(p->'metadata', 'null') FROM batch_files f
    WHERE f.id = p->>'file' AND f.project = (p->>'project')::uuid AND f.purpose = 'batch'
      AND f.expires_at > batches_now() RETURNING * INTO b;
    RETURN CASE WHEN b.id IS NOT NULL THEN batches_batch(b) END;
END $$;

-- The one of an `id`, or `limit` of them behind `after`, newest first. With `cancel` lines of that one
-- which are running finish, and the others never begin.
CREATE OR REPLACE FUNCTION batches_list(p jsonb) RETURNS jsonb
LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp AS $$
    UPDATE batches SET status = 'cancelling', cancelling_at = batches_now()
    WHERE p ? 'cancel' AND id = p->>'id' AND project = (p->>'project')::uuid
      AND status IN ('validating', 'in_progress');
    SELECT coalesce(jsonb_agg(s.shown), '[]') FROM (
        SELECT batches_batch(b) AS shown FROM batches b
        WHERE b.project = (p->>'project')::uuid AND b.id = coalesce(p->>'id', b.id)
          AND b.id < coalesce(p->>'after', 'z')
        ORDER BY b.id DESC LIMIT (p->>'limit')::integer) AS s
$$;

GRANT EXECUTE ON FUNCTION batches_upload, batches_part, batches_uploaded, batches_files,
    batches_read, batches_forget, batches_create, batches_list TO sluice_gateway;
GRANT EXECUTE ON FUNCTION batches_read, batches_forget, batches_list TO sluice_app;
