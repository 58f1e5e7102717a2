-- What gateways read of the rows of which there may be many. Each function gives a page of those that
-- have changed since a mark, in the order of their ids, or of all since 0, as a JSON text; a row that
-- is gone from the configuration has no body.

-- The limits of a key's line, a project or an organization: of all its requests, of those of each end
-- user, and of those to single models; none where it has none.
CREATE OR REPLACE FUNCTION config_limits(p_subject uuid) RETURNS json
LANGUAGE sql STABLE AS $$
    WITH mine AS (
        SELECT model, per_user, jsonb_build_object(
            'requests_per_min', requests_per_min,
            'tokens_per_min', tokens_per_min,
            'requests_per_day', requests_per_day,
            'concurrency', concurrency
        ) AS body FROM rate_limits WHERE subject_id = p_subject
    )
    SELECT (coalesce((SELECT body FROM mine WHERE model = '' AND NOT per_user), '{}')
            || coalesce((SELECT jsonb_build_object('per_user', body) FROM mine WHERE per_user), '{}')
            || coalesce((SELECT jsonb_build_object('models', jsonb_object_agg(model, body))
                         FROM mine WHERE model <> '' HAVING count(*) > 0), '{}'))::json
$$;

CREATE OR REPLACE FUNCTION config_budgets(p_since bigint, p_after uuid, p_most integer)
RETURNS text LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    picked uuid[];
BEGIN
    IF p_since = 0 THEN
        picked := ARRAY(SELECT id FROM budgets WHERE id > p_after AND scope <> 'user'
                        ORDER BY id LIMIT p_most);
    ELSE
        picked := ARRAY(
            SELECT subject FROM config_marks
            WHERE version > p_since AND kind = 'budget' AND subject > p_after
            ORDER BY subject LIMIT p_most);
    END IF;
    RETURN (
        SELECT coalesce(json_agg(json_build_object(
            'id', id,
            'name', replace(id::text, '-', ''),
            -- A limit beyond this is none; its row only keeps what was spent.
            'body', CASE WHEN lim < 4000000000000000000 THEN true END
        ) ORDER BY id), '[]')
        FROM budgets WHERE id = ANY (picked)
    );
END $$;

CREATE OR REPLACE FUNCTION config_projects(p_since bigint, p_after uuid, p_most integer)
RETURNS text LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    picked uuid[];
BEGIN
    IF p_since = 0 THEN
        picked := ARRAY(SELECT id FROM projects WHERE id > p_after ORDER BY id LIMIT p_most);
    ELSE
        picked := ARRAY(
            SELECT subject FROM config_marks
            WHERE version > p_since AND kind = 'project' AND subject > p_after
            ORDER BY subject LIMIT p_most);
    END IF;
    RETURN (
        SELECT coalesce(json_agg(json_build_object(
            'id', p.id,
            'name', replace(p.id::text, '-', ''),
            'body', json_build_object(
                'id', replace(p.id::text, '-', ''),
                'organization', replace(p.organization_id::text, '-', ''),
                'safety', p.safety_mode,
                'limits', config_limits(p.id),
                'weight', p.weight,
                'content', p.allow_content_logging,
                'strict', p.strict,
                'labels', p.labels,
                'cache_minutes', p.cache_minutes,
                'cache_shared', p.cache_shared,
                'model_budgets', (
                    SELECT coalesce(json_object_agg(o.model, replace(b.id::text, '-', '')), '{}')
                    FROM budget_parts o JOIN budgets b ON b.id = o.budget
                    WHERE o.project = p.id AND b.scope = 'model' AND b.lim < 4000000000000000000
                ),
                'users_budget', coalesce((
                    SELECT replace(b.id::text, '-', '') FROM budget_parts o
                    JOIN budgets b ON b.id = o.budget
                    WHERE o.project = p.id AND b.scope = 'users' AND b.lim < 4000000000000000000
                ), ''),
                'keeps_days', p.keeps_days,
                'content_key', coalesce(encode(p.content_key, 'hex'), ''),
                'policies', nullif(p.policies, '{}')
            )
        ) ORDER BY p.id), '[]')
        FROM projects p WHERE p.id = ANY (picked)
    );
END $$;

CREATE OR REPLACE FUNCTION config_prompts(p_since bigint, p_after uuid, p_most integer)
RETURNS text LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    picked uuid[];
BEGIN
    IF p_since = 0 THEN
        picked := ARRAY(
            SELECT id FROM prompt_templates WHERE id > p_after ORDER BY id LIMIT p_most);
    ELSE
        picked := ARRAY(
            SELECT subject FROM config_marks
            WHERE version > p_since AND kind = 'prompt' AND subject > p_after
            ORDER BY subject LIMIT p_most);
    END IF;
    RETURN (
        SELECT coalesce(json_agg(json_build_object(
            'id', t.id,
            'name', replace(t.organization_id::text, '-', '') || '/' || t.name,
            'body', CASE WHEN v.published IS NOT NULL THEN json_build_object(
                'name', t.name,
                'project', replace(t.project_id::text, '-', ''),
                'published', v.published,
                'canary', v.canary,
                'share_permille', v.share_permille,
                'versions', v.bodies
            ) END
        ) ORDER BY t.id), '[]')
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
                -- Those that requests may name; `catalog/prompts.py` bounds their bytes by this.
                ORDER BY state = 'canary' DESC, published_at DESC LIMIT 5
            ) s
        ) v
        WHERE t.id = ANY (picked)
    );
END $$;

-- An hour after its end a key is simply unknown, so that the ended ones do not pile up. That is no
-- change of a row either: those whose hour has passed since `p_read_s` (the last reading, in seconds
-- of this clock) come as gone.
CREATE OR REPLACE FUNCTION config_keys(
    p_since bigint, p_after uuid, p_most integer, p_read_s double precision
) RETURNS text LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    told_until CONSTANT timestamptz := now() - interval '1 hour';
    told_from CONSTANT timestamptz := to_timestamp(p_read_s) - interval '1 hour';
    picked uuid[];
BEGIN
    IF p_since = 0 THEN
        picked := ARRAY(
            SELECT id FROM api_keys
            WHERE id > p_after AND coalesce(least(revoked_at, expires_at), 'infinity') > told_until
            ORDER BY id LIMIT p_most);
    ELSE
        picked := ARRAY(
            SELECT id FROM (
                SELECT k.id FROM config_marks m JOIN api_keys k ON k.id = m.subject
                WHERE m.version > p_since AND m.kind = 'key'
                UNION
                SELECT k.id FROM config_marks m JOIN api_keys k ON k.limits_of_id = m.subject
                WHERE m.version > p_since AND m.kind = 'key'
                UNION
                SELECT k.id FROM config_marks m JOIN api_keys k ON k.project_id = m.subject
                WHERE m.version > p_since AND m.kind = 'keys'
                UNION
                SELECT k.id FROM config_marks m JOIN api_keys k ON k.organization_id = m.subject
                WHERE m.version > p_since AND m.kind = 'keys'
                UNION
                SELECT k.id FROM api_keys k
                WHERE least(k.revoked_at, k.expires_at) BETWEEN told_from AND told_until
            ) AS changed
            WHERE id > p_after ORDER BY id LIMIT p_most);
    END IF;
    RETURN (
        SELECT coalesce(json_agg(json_build_object(
            'id', k.id,
            'name', k.key_id,
            'body', CASE WHEN coalesce(least(k.revoked_at, k.expires_at), 'infinity') > told_until
            THEN json_build_object(
                'key_id', k.key_id,
                'id', replace(k.id::text, '-', ''),
                'digest', encode(k.digest, 'base64'),
                'organization', replace(k.organization_id::text, '-', ''),
                'project', replace(k.project_id::text, '-', ''),
                'label', k.label,
                'expires_at_s', extract(epoch FROM k.expires_at),
                'revoked', k.revoked_at IS NOT NULL,
                'models', k.allowed_models,
                'budgets', ARRAY(
                    SELECT replace(b.id::text, '-', '')
                    FROM unnest(ARRAY[
                        coalesce(k.limits_of_id, k.id), k.project_id, k.organization_id,
                        ledger_wallet(k.organization_id)
                    ]) WITH ORDINALITY AS s (id, place)
                    JOIN budgets b ON b.id = s.id AND b.lim < 4000000000000000000
                    ORDER BY s.place
                ),
                'limits_id', replace(coalesce(k.limits_of_id, k.id)::text, '-', ''),
                'limits', config_limits(coalesce(k.limits_of_id, k.id)),
                'endpoints', (
                    SELECT coalesce(json_agg(e), '[]')
                    FROM unnest(coalesce(k.allowed_endpoints, ARRAY['models', 'key'])) e
                    WHERE NOT k.read_only OR e IN ('models', 'key')
                    HAVING k.read_only OR k.allowed_endpoints IS NOT NULL
                ),
                'networks', k.networks,
                'tags', k.tags,
                'priority', k.priority
            ) END
        ) ORDER BY k.id), '[]')
        FROM api_keys k WHERE k.id = ANY (picked)
    );
END $$;

GRANT EXECUTE ON FUNCTION config_budgets, config_projects, config_prompts, config_keys
    TO sluice_gateway;
