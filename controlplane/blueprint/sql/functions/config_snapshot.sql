-- The configuration that gateways read: its number each second, and then only what has changed since
-- the number that they have. Each change leaves a mark with the number it got; rows of which a tenant
-- can have many (keys, projects, budgets, prompt templates) are read one by one and in pages, all
-- else part by part. The shapes are those of bridge/configuration/snapshot.py.

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
        'images_max', m.images_max,
        'image_tokens_max', m.image_tokens_max,
        'image_patch', m.image_patch,
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
        'pool', o.pool,
        'region', o.region,
        'prompt_bucket', o.prompt_bucket,
        'parts', o.parts
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
        FROM (SELECT DISTINCT subject_id FROM rate_limits WHERE scope = 'organization') AS limited
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

GRANT EXECUTE ON FUNCTION config_now, config_parts TO sluice_gateway;
