-- The whole configuration that gateways read, as one JSON text in the shape of gateway/snapshot.py.
-- One statement reads everything, so version and content belong together. Run again by a migration
-- whenever it changes; on a fresh database the first of these comes before some of the columns.
SET LOCAL check_function_bodies = off;

-- Prices come into force by the clock, without any change of a row: counting those that have is
-- what makes the number move then.
CREATE OR REPLACE FUNCTION config_version_now() RETURNS bigint
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT version + (SELECT count(*) FROM price_versions WHERE effective_from <= now())
                   + (SELECT count(*) FROM price_versions WHERE effective_until <= now())
    FROM config_version WHERE id = 1
$$;

CREATE OR REPLACE FUNCTION config_snapshot() RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
WITH limited AS (
    SELECT id, replace(id::text, '-', '') AS hex FROM budgets
    -- A limit beyond this is none; its row only keeps what was spent.
    WHERE lim < 4000000000000000000
), limit_rows AS (
    SELECT subject_id, scope, json_build_object(
        'requests_per_min', requests_per_min,
        'tokens_per_min', tokens_per_min,
        'requests_per_day', requests_per_day,
        'concurrency', concurrency
    ) AS body
    FROM rate_limits
), key_rows AS (
    SELECT k.key_id, json_build_object(
        'key_id', k.key_id,
        'id', replace(k.id::text, '-', ''),
        'digest', encode(k.digest, 'base64'),
        'organization', replace(k.organization_id::text, '-', ''),
        'project', replace(k.project_id::text, '-', ''),
        'label', k.label,
        'expires_at_s', extract(epoch FROM k.expires_at),
        'revoked', k.revoked_at IS NOT NULL,
        'models', k.allowed_models,
        'budgets', array_remove(ARRAY[bk.hex, bp.hex, bo.hex, bw.hex], NULL),
        'limits_id', replace(coalesce(k.limits_of_id, k.id)::text, '-', ''),
        'limits', coalesce(l.body, '{}'),
        'endpoints', (
            SELECT coalesce(json_agg(e), '[]')
            FROM unnest(coalesce(k.allowed_endpoints, ARRAY['models', 'key'])) e
            WHERE NOT k.read_only OR e IN ('models', 'key')
            HAVING k.read_only OR k.allowed_endpoints IS NOT NULL
        ),
        'networks', k.networks,
        'tags', k.tags,
        'priority', k.priority
    ) AS body
    FROM api_keys k
    LEFT JOIN limited bk ON bk.id = coalesce(k.limits_of_id, k.id)
    LEFT JOIN limited bp ON bp.id = k.project_id
    LEFT JOIN limited bo ON bo.id = k.organization_id
    LEFT JOIN limited bw ON bw.id = ledger_wallet(k.organization_id)
    LEFT JOIN limit_rows l ON l.subject_id = coalesce(k.limits_of_id, k.id)
    -- Long after its end a key is simply unknown, so that the snapshot does not grow for ever.
    WHERE coalesce(k.revoked_at, 'infinity') > now() - interval '30 days'
      AND coalesce(k.expires_at, 'infinity') > now() - interval '30 days'
), project_rows AS (
    SELECT replace(p.id::text, '-', '') AS hex, json_build_object(
        'id', replace(p.id::text, '-', ''),
        'organization', replace(p.organization_id::text, '-', ''),
        'safety', p.safety_mode,
        'limits', coalesce(l.body, '{}'),
        'weight', p.weight,
        'content', p.allow_content_logging
    ) AS body
    FROM projects p LEFT JOIN limit_rows l ON l.subject_id = p.id
), override_rows AS (
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
), prompt_rows AS (
    SELECT replace(t.organization_id::text, '-', '') || '/' || t.name AS name, json_build_object(
        'name', t.name,
        'project', replace(t.project_id::text, '-', ''),
        'published', v.published,
        'canary', v.canary,
        'share_permille', v.share_permille,
        'versions', v.bodies
    ) AS body
    FROM prompt_templates t
    CROSS JOIN LATERAL (
        SELECT max(s.version) FILTER (WHERE s.state = 'published') AS published,
               max(s.version) FILTER (WHERE s.state = 'canary') AS canary,
               coalesce(max(s.share_permille) FILTER (WHERE s.state = 'canary'), 0)
                   AS share_permille,
               json_object_agg(s.version, s.body) AS bodies
        FROM (
            SELECT * FROM prompt_versions
            WHERE template_id = t.id AND (published_at IS NOT NULL OR state = 'canary')
            -- Those that requests may name; `catalog/prompts.py` bounds their bytes by this number.
            ORDER BY state = 'canary' DESC, published_at DESC LIMIT 5
        ) s
    ) v
    WHERE v.published IS NOT NULL
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
)
SELECT json_build_object(
    'version', config_version_now(),
    'keys', (SELECT coalesce(json_object_agg(key_id, body), '{}') FROM key_rows),
    'organizations', (
        SELECT coalesce(json_object_agg(replace(subject_id::text, '-', ''), body), '{}')
        FROM limit_rows WHERE scope = 'organization'
    ),
    'projects', (SELECT coalesce(json_object_agg(hex, body), '{}') FROM project_rows),
    'models', (SELECT coalesce(json_object_agg(name, body), '{}') FROM model_rows),
    'rules', coalesce((SELECT rules FROM rule_rows WHERE state = 'published'), '[]'),
    'candidate', (
        SELECT json_build_object('rules', rules, 'share_permille', share_permille)
        FROM rule_rows WHERE state = 'canary'
    ),
    'budgets', (SELECT coalesce(json_agg(hex), '[]') FROM limited),
    'tokens_from', (
        SELECT coalesce(json_object_agg(
            replace(id::text, '-', ''), extract(epoch FROM tokens_from)), '{}')
        -- Older tokens than these have ended by themselves.
        FROM users WHERE tokens_from > now() - interval '15 minutes'
    ),
    'prompts', (SELECT coalesce(json_object_agg(name, body), '{}') FROM prompt_rows),
    'objectives', (SELECT coalesce(json_agg(body), '[]') FROM objective_rows),
    'shed_until', (SELECT coalesce(json_object_agg(priority, until_s), '{}') FROM shed_rows)
)::text
$$;

GRANT CREATE ON SCHEMA public TO sluice_ledger;
ALTER FUNCTION config_version_now() OWNER TO sluice_ledger;
ALTER FUNCTION config_snapshot() OWNER TO sluice_ledger;
REVOKE CREATE ON SCHEMA public FROM sluice_ledger;
REVOKE ALL ON FUNCTION config_version_now(), config_snapshot() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION config_version_now(), config_snapshot() TO sluice_gateway;
