-- What `GET /v1/key` tells of money: the budgets that a key spends from, and what its line of keys
-- was charged this day, week and month (UTC), as one JSON text.
CREATE OR REPLACE FUNCTION config_key_standing(p_key uuid) RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
SELECT json_build_object(
    'budgets', (
        SELECT coalesce(json_agg(json_build_object(
            'scope', b.scope,
            'limit_nano', b.lim - coalesce(t.base, 0),
            'spent_nano', b.posted - coalesce(t.base, 0),
            'held_nano', b.held,
            'period', coalesce(t.period, 'none'),
            'turns_at_s', extract(epoch FROM t.turns_at)
        ) ORDER BY array_position(ARRAY['key', 'project', 'organization', 'wallet'], b.scope)), '[]')
        FROM budgets b LEFT JOIN budget_terms t ON t.budget = b.id
        WHERE b.lim < 4000000000000000000 AND b.id IN (
            k.limits, k.project_id, k.organization_id, ledger_wallet(k.organization_id)
        )
    ),
    'day_nano', ledger_spent_since(
        'key', k.limits, k.organization_id, date_trunc('day', now(), 'UTC')),
    'week_nano', ledger_spent_since(
        'key', k.limits, k.organization_id, date_trunc('week', now(), 'UTC')),
    'month_nano', ledger_spent_since(
        'key', k.limits, k.organization_id, date_trunc('month', now(), 'UTC'))
)::text
FROM (
    SELECT coalesce(limits_of_id, id) AS limits, project_id, organization_id
    FROM api_keys WHERE id = p_key
) k
$$;

GRANT EXECUTE ON FUNCTION config_key_standing TO sluice_gateway;
