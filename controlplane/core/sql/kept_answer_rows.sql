-- A kept answer is seen, added and dropped by the request that it is of, as `app.attempt`; what is old
-- is dropped by a function.
ALTER TABLE kept_answers ENABLE ROW LEVEL SECURITY;
ALTER TABLE kept_answers FORCE ROW LEVEL SECURITY;
CREATE POLICY kept_answer_own ON kept_answers TO sluice_app USING (
    id = (SELECT nullif(current_setting('app.attempt', true), '')::uuid)
);
CREATE POLICY kept_answer_functions ON kept_answers TO sluice_ledger USING (true);
GRANT SELECT, DELETE ON kept_answers TO sluice_ledger;

-- Drops at most `rows_max` that are older than `before`, oldest first; returns how many.
CREATE FUNCTION kept_answers_forget(before timestamptz, rows_max integer) RETURNS bigint
LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp AS $$
    WITH gone AS (
        DELETE FROM kept_answers WHERE id IN (
            SELECT id FROM kept_answers WHERE created_at < before
            ORDER BY created_at LIMIT rows_max)
        RETURNING 1
    ) SELECT count(*) FROM gone
$$;
GRANT CREATE ON SCHEMA public TO sluice_ledger;
ALTER FUNCTION kept_answers_forget(timestamptz, integer) OWNER TO sluice_ledger;
REVOKE CREATE ON SCHEMA public FROM sluice_ledger;
REVOKE ALL ON FUNCTION kept_answers_forget(timestamptz, integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION kept_answers_forget(timestamptz, integer) TO sluice_app;
