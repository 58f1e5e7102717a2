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
        RETURN QUERY SELECT 'project', project FROM budget_parts WHERE budget = (r ->> 'id')::uuid;
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

REVOKE ALL ON FUNCTION config_marks_of FROM PUBLIC;
