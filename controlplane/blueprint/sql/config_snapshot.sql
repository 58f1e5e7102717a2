-- The configuration that gateways read: its number each second, and then only what has changed since
-- the number that they have. Each change leaves a mark with the number it got; rows of which a tenant
-- can have many (keys, projects, budgets, prompt templates) are read one by one and in pages, all
-- else part by part. The shapes are those of bridge/snapshot.py. Run again by a migration whenever it
-- changes; on a fresh database the first of these comes before some of the tables.
SET LOCAL check_function_bodies = off;
DROP FUNCTION IF EXISTS config_version_now(), config_snapshot();

-- Which marks a changed row leaves: `key` is one line of keys, `keys` are all of a project or an
-- organization; a part of the configuration has no subject of its own.
CREATE OR REPLACE FUNCTION config_marks_of(changed_table text, r jsonb)
RETURNS TABLE (kind text, subject uuid)
LANGUAGE plpgsql STABLE SET search_path = public, pg_temp AS $$
DECLARE
    nobody CONSTANT uuid := '00000000-0000-0000-0000-000000000000';
BEGIN
    CASE changed_table
    WHEN 'api_keys' THEN RETURN QUERY VALUES ('key', (r ->> 'id')::uuid);
    WHEN 'projects' THEN RETURN QUERY VALUES ('project', (r ->> 'id')::uuid);
    WHEN 'prompt_versions' THEN RETURN QUERY VALUES ('prompt', (r ->> 'template_id')::uuid);
    WHEN 'budgets' THEN RETURN QUERY VALUES ('budget', (r ->> 'id')::uuid), (
        CASE r ->> 'scope' WHEN 'key' THEN 'key' ELSE 'keys' END,
        (CASE r ->> 'scope' WHEN 'wallet' THEN r ->> 'organization' ELSE r ->> 'id' END)::uuid);
    WHEN 'rate_limits' THEN RETURN QUERY VALUES (
        CASE r ->> 'scope' WHEN 'organization' THEN 'organizations' ELSE r ->> 'scope' END,
        CASE r ->> 'scope' WHEN 'organization' THEN nobody ELSE (r ->> 'subject_id')::uuid END);
    WHEN 'models', 'price_versions', 'model_digests' THEN RETURN QUERY VALUES ('models', nobody);
    WHEN 'rule_sets' THEN RETURN QUERY VALUES ('rules', nobody);
    WHEN 'slo_objectives', 'slo_holds' THEN
        RETURN QUERY VALUES ('objectives', nobody);
    WHEN 'users' THEN RETURN QUERY VALUES ('tokens_from', nobody);
    END CASE;  -- any other table is an error: its changes would reach no gateway
END $$;

CREATE OR REPLACE FUNCTION config_changed() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = public, pg_temp AS $$
DECLARE
    now_version bigint;
BEGIN
    -- Once per transaction is enough, however many rows it touched.
    IF nullif(current_setting('app.config_bumped', true), '') IS DISTINCT FROM
            pg_current_xact_id()::text THEN
        UPDATE config_version SET version = version + 1 WHERE id = 1;
        PERFORM set_config('app.config_bumped', pg_current_xact_id()::text, true);
        -- Only a nudge: gateways poll as well.
        PERFORM pg_notify('sluice_config', '');
    END IF;
    SELECT version INTO now_version FROM config_version WHERE id = 1;
    INSERT INTO config_marks AS kept (kind, subject, version)
    SELECT m.kind, m.subject, now_version
    FROM config_marks_of(TG_TABLE_NAME, to_jsonb(coalesce(NEW, OLD))) AS m
    ON CONFLICT (kind, subject) DO UPDATE SET version = EXCLUDED.version
        WHERE kept.version < EXCLUDED.version;
    RETURN NULL;
END $$;

-- Prices come into force by the clock, without any change of a row: counting those that have is
-- what makes the number move then. With it comes the clock by which keys expire, in seconds.
CREATE OR REPLACE FUNCTION config_now(
    OUT version bigint, OUT mark bigint, OUT now_s double precision
) LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT version + (SELECT count(*) FROM price_versions WHERE effective_from <= now())
                   + (SELECT count(*) FROM price_versions WHERE effective_until <= now()),
           version, extract(epoch FROM clock_timestamp())::double precision
    FROM config_version WHERE id = 1
$$;

-- All else, part by part; a part is null where nothing of it has changed since a mark. Prices count as
-- changed where others are in force than the number that a gateway knows of.
CREATE OR REPLACE FUNCTION config_parts(p_since bigint, p_prices bigint) RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
WITH override_rows AS (
    SELECT v.model_id, replace(v.project_id::text, '-', '') AS project, json_build_object(
        'price', json_build_object(
            'version', v.version,
            'input_pico', v.input_pico,
            'cached_pico', v.cached_pico,
            'output_pico', v.output_pico
        ),
        'batch_permille', v.batch_permille,
        'priority_permille', v.priority_permille
    ) AS terms
    FROM (
        SELECT DISTINCT ON (model_id, project_id) * FROM price_versions
        WHERE project_id IS NOT NULL AND effective_from <= now()
        ORDER BY model_id, project_id, effective_from DESC, version DESC
    ) AS v
    -- The last one to begin decides, also where it has ended.
    WHERE coalesce(v.effective_until, 'infinity') > now()
), model_rows AS (
    SELECT m.name, json_build_object(
        'name', m.name,
        'task', m.task,
        'pool', m.pool,
        'context_window', m.context_window,
        'output_tokens_default', m.output_tokens_default,
        'output_tokens_max', m.output_tokens_max,
        'price', p.price,
        'batch_permille', p.batch_permille,
        'priority_permille', p.priority_permille,
        'overrides', (
            SELECT coalesce(json_object_agg(o.project, o.terms), '{}') FROM override_rows o
            WHERE o.model_id = m.id
        ),
        'created_s', floor(extract(epoch FROM m.created_at)),
        'owner', m.owner,
        'digests', (
            SELECT coalesce(json_agg(d.digest), '[]') FROM model_digests d
            WHERE d.model = m.name AND d.state = 'approved'
        )
    ) AS body
    FROM models m
    CROSS JOIN LATERAL (
        SELECT json_build_object(
            'version', v.version,
            'input_pico', v.input_pico,
            'cached_pico', v.cached_pico,
            'output_pico', v.output_pico
        ) AS price, v.batch_permille, v.priority_permille
        FROM price_versions v
        WHERE v.model_id = m.id AND v.effective_from <= now() AND v.project_id IS NULL
        ORDER BY v.effective_from DESC, v.version DESC LIMIT 1
    ) p
    WHERE m.enabled
), rule_rows AS (
    SELECT s.state, s.share_permille, coalesce(
        jsonb_agg(r.rule || jsonb_build_object('version', s.version) ORDER BY r.place)
            FILTER (WHERE r.rule IS NOT NULL), '[]') AS rules
    FROM rule_sets s
    LEFT JOIN LATERAL jsonb_array_elements(s.rules) WITH ORDINALITY AS r(rule, place) ON true
    WHERE s.state IN ('published', 'canary')
    GROUP BY s.id
), objective_rows AS (
    SELECT json_build_object(
        'id', replace(o.id::text, '-', ''),
        'version', o.version,
        'organization', replace(o.organization::text, '-', ''),
        'indicator', o.indicator,
        'threshold', o.threshold,
        'route', o.route,
        'model', o.model,
        'project', replace(coalesce(o.project::text, ''), '-', ''),
        'prompt_bucket', o.prompt_bucket
    ) AS body
    FROM slo_objectives o WHERE o.enabled AND o.ended_at IS NULL
), shed_rows AS (
    SELECT o.shed_priority AS priority, extract(epoch FROM max(h.until)) AS until_s
    FROM slo_holds h JOIN slo_objectives o ON o.id = h.objective_id
    WHERE h.released_at IS NULL AND h.until > now() AND o.shed_priority IS NOT NULL
      AND o.enabled AND o.ended_at IS NULL
    GROUP BY o.shed_priority
), changed AS MATERIALIZED (
    SELECT kind FROM config_marks WHERE version > p_since
    UNION ALL
    SELECT kind FROM unnest(ARRAY['models', 'rules', 'objectives', 'organizations', 'tokens_from'])
        AS parts (kind) WHERE p_since = 0
    UNION ALL
    SELECT 'models' FROM config_now() n WHERE n.version - n.mark <> p_prices
)
SELECT json_build_object(
    'organizations', CASE WHEN 'organizations' IN (SELECT kind FROM changed) THEN (
        SELECT coalesce(json_object_agg(
            replace(subject_id::text, '-', ''), config_limits(subject_id)), '{}')
        FROM rate_limits WHERE scope = 'organization'
    ) END,
    'models', CASE WHEN 'models' IN (SELECT kind FROM changed) THEN (
        SELECT coalesce(json_object_agg(name, body), '{}') FROM model_rows
    ) END,
    'model_names', CASE WHEN 'models' IN (SELECT kind FROM changed) THEN (
        SELECT coalesce(json_agg(name), '[]') FROM models
    ) END,
    'rules', CASE WHEN 'rules' IN (SELECT kind FROM changed) THEN json_build_object(
        'rules', coalesce((SELECT rules FROM rule_rows WHERE state = 'published'), '[]'),
        'candidate', (
            SELECT json_build_object('rules', rules, 'share_permille', share_permille)
            FROM rule_rows WHERE state = 'canary'
        )
    ) END,
    'tokens_from', CASE WHEN 'tokens_from' IN (SELECT kind FROM changed) THEN (
        SELECT coalesce(json_object_agg(
            replace(id::text, '-', ''), extract(epoch FROM tokens_from)), '{}')
        -- Older tokens than these have ended by themselves.
        FROM users WHERE tokens_from > now() - interval '15 minutes'
    ) END,
    'objectives', CASE WHEN 'objectives' IN (SELECT kind FROM changed) THEN json_build_object(
        'objectives', (SELECT coalesce(json_agg(body), '[]') FROM objective_rows),
        'shed_until', (SELECT coalesce(json_object_agg(priority, until_s), '{}') FROM shed_rows)
    ) END
)::text
$$;

GRANT CREATE ON SCHEMA public TO sluice_ledger;
ALTER FUNCTION config_now() OWNER TO sluice_ledger;
ALTER FUNCTION config_parts(bigint, bigint) OWNER TO sluice_ledger;
REVOKE CREATE ON SCHEMA public FROM sluice_ledger;
REVOKE ALL ON FUNCTION config_changed(), config_marks_of(text, jsonb) FROM PUBLIC;
REVOKE ALL ON FUNCTION
    config_now(),
    config_parts(bigint, bigint)
    FROM PUBLIC;
GRANT EXECUTE ON FUNCTION
    config_now(),
    config_parts(bigint, bigint)
    TO sluice_gateway;
