-- Drops at most `rows_max` that are older than `before`, oldest first; returns how many.
CREATE OR REPLACE FUNCTION kept_answers_forget(before timestamptz, rows_max integer) RETURNS bigint
LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp AS $$
    WITH gone AS (
        DELETE FROM kept_answers WHERE id IN (
            SELECT id FROM kept_answers WHERE created_at < before
            ORDER BY created_at LIMIT rows_max)
        RETURNING 1
    ) SELECT count(*) FROM gone
$$;
GRANT EXECUTE ON FUNCTION kept_answers_forget TO sluice_app;
