-- The rows of route_rules, as JSON in the shape of kernel/rules.py; the newest version is published.
UPDATE rule_sets s SET
    state = CASE WHEN s.version = (SELECT max(version) FROM rule_sets)
                 THEN 'published' ELSE 'retired' END,
    published_at = s.created_at,
    rules = coalesce((
        SELECT jsonb_agg(jsonb_build_object(
            'name', r.name,
            'match', jsonb_strip_nulls(jsonb_build_object(
                'aliases', CASE WHEN r.alias IS NOT NULL THEN jsonb_build_array(r.alias) END,
                'projects', CASE WHEN r.project_id IS NOT NULL
                    THEN jsonb_build_array(replace(r.project_id::text, '-', '')) END)),
            'steps', jsonb_build_array(jsonb_build_object(
                'targets', jsonb_build_array(jsonb_build_object(
                    'model', r.model, 'pool', r.pool)))))
            ORDER BY r.position)
        FROM route_rules r WHERE r.rule_set_id = s.id), '[]');
